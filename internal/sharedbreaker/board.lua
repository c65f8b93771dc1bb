-- board.lua stands before every script of this package: what the scripts agree on.
--
-- All keys of a group carry one hash tag. Times are Redis's, in ms, and numbers are written with int(), because Redis
-- prints large ones with an exponent.
--   epoch       hash   id, t = latest time seen, g = highest generation of forgotten dependencies
--   deps        zset   dependency -> latest report, to a second
--   ovr, pol    hash   dependency -> "revision,deleted,until,json"; until 0 = for ever
--   due         zset   b:, o:, q: + dependency -> when its breaker, override or policy's tombstone needs a look
--   log         stream transitions
--   s:<name>    hash   b = "epoch,generation,phase,since,episode,until,openings,reopenings,rate,reason",
--                      a = registered at, r = "tag,run,version" of the rule counters,
--                      x = no retries before, as the dependency asked; "" = it did not
--                      n = "at,tag,failure rate,instances,failing,applied,revision,level,older level,since",
--                      0 to 59 = bucket "tag,index,successes,failures,slow" of 500 ms
--   p:<name>    hash   probe permits, see probe.lua
--   i:<name>    hash   sampled instance -> "rank,seen,verdict at,failing,epoch:tag,override revision"
--   v:<name>    hash   0 to 39 = display counters of one second, "second,counter,counter,...";
--                      f = the step that is under way in them
--   h:<name>    hash   0 to 239 = display counters of a step of 15 s, "step,counter,counter,...": the last hour
-- A phase is c(losed), o(pen), h(alf-open, probing) or r(amping). A tag is generation .. phase: what was counted
-- under another one does not count.

local STATE_TTL, RING_TTL, SERIES_TTL, DUE_TTL, LOG_TTL = 90000, 120, 7200, 691200, 2592000 -- seconds
local TOMBSTONE = 604800000

local function int(n)
  return string.format('%.0f', n)
end

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- late reports whether an order is too old: whoever gave it was told long ago that it failed.
local function late(deadline)
  return deadline ~= '' and clock() > tonumber(deadline)
end

local function changed()
  redis.call('PUBLISH', NOTICE, string.match(KEYS[1], '{g(%d+)}'))
end

-- begin gives the group a new memory: whatever was written under another epoch is void.
local function begin(key, fresh, now)
  redis.call('DEL', key)
  redis.call('HSET', key, 'id', fresh, 't', int(now))
  redis.call('EXPIRE', key, STATE_TTL)
  changed()
end

-- memory returns the group's epoch and the highest generation that is used up in it. Without one, or when the clock
-- ran backward, a new epoch begins.
local function memory(key, fresh, now)
  local m = redis.call('HMGET', key, 'id', 't', 'g')
  local t = tonumber(m[2] or 0)
  if not m[1] or t > now + 1000 then
    begin(key, fresh, now)
    return fresh, 0
  end
  if now > t + 100 then
    redis.call('HSET', key, 't', int(now))
    redis.call('EXPIRE', key, STATE_TTL)
  end
  return m[1], tonumber(m[3] or 0)
end

-- head takes a breaker's epoch, generation and phase apart.
local function head(b)
  return string.match(b or '', '^(%w+),(%d+),(%l),')
end

-- register begins a breaker: closed, in the generation after all that its epoch has seen.
local function register(name, state, permits, deps, epoch, used, now)
  local b = epoch .. ',' .. int(used + 1) .. ',c,' .. int(now) .. ',0,0,0,0,0,'
  redis.call('DEL', state, permits)
  redis.call('HSET', state, 'b', b, 'a', int(now))
  redis.call('EXPIRE', state, STATE_TTL)
  redis.call('ZADD', deps, 'NX', int(now), name)
  redis.call('EXPIRE', deps, STATE_TTL)
  return b
end

-- automatic is the state that readers see: open ends with its time.
local function automatic(b, epoch, now)
  local e, phase, till = string.match(b or '', '^(%w+),%d+,(%l),%d+,%d+,(%d+),')
  if e ~= epoch or phase == 'c' then
    return 'closed'
  end
  return phase == 'o' and tonumber(till) > now and 'open' or 'half_open'
end

local function record(v)
  local revision, deleted, till, json = string.match(v or '', '^(%d+),(%d),(%d+),(.*)$')
  return tonumber(revision or 0), deleted == '1', tonumber(till or 0), json or ''
end

-- forced is the state under an override of that mode.
local function forced(mode, b, epoch, now)
  if mode == 'force_open' then
    return 'open'
  end
  return mode == 'force_closed' and 'closed' or automatic(b, epoch, now)
end

-- standing is an override's document while it is in force, else nil.
local function standing(v, now)
  local _, deleted, till, json = record(v)
  if json ~= '' and not deleted and till > now then
    return cjson.decode(json)
  end
end

local function remind(due, member, at)
  redis.call('ZADD', due, int(at), member)
  redis.call('EXPIRE', due, DUE_TTL)
end

-- note writes an entry of the transition log and tells the replicas.
local function note(log, name, from, to, generation, reason, cause, actor, now)
  local id = redis.call('XADD', log, 'MAXLEN', '~', '10000', '*', 'name', name, 'from', from, 'to', to, 'generation',
    generation, 'reason', reason, 'cause', cause, 'actor', actor, 'at', int(now))
  redis.call('EXPIRE', log, LOG_TTL)
  changed()
  return id
end

-- lapse notes the end of an override whose time is up, once: it leaves a tombstone. It returns the log entry.
local function lapse(ovr, log, due, name, v, b, epoch, now)
  local revision, _, _, json = record(v)
  local o = cjson.decode(json)
  local _, generation = head(b)
  local from, to = forced(o.mode, b, epoch, now), automatic(b, epoch, now)
  redis.call('HSET', ovr, name, int(revision) .. ',1,' .. int(now + TOMBSTONE) .. ',')
  remind(due, 'o:' .. name, now + TOMBSTONE)
  generation = generation or '0'
  local id = note(log, name, from, to, generation, o.reason or '', 'expiry', '', now)
  return {id, name, from, to, generation, o.reason or ''}
end

-- forget drops a dependency. Its generation is used up: if it comes back within the epoch, it goes on from there.
local function forget(key, deps, due, name, state, permits, sample, display, history, epoch, used)
  local e, generation = head(redis.call('HGET', state, 'b'))
  if e == epoch and tonumber(generation) > used then
    used = tonumber(generation)
    redis.call('HSET', key, 'g', generation)
  end
  redis.call('DEL', state, permits, sample, display, history)
  redis.call('ZREM', deps, name)
  redis.call('ZREM', due, 'b:' .. name)
  return used
end

