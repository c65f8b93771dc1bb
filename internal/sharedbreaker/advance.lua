-- advance does what is due in a group without traffic, as far as that needs no policy: it logs the end of overrides,
-- drops old tombstones and forgets dependencies that nobody reports. It returns the breakers that need a decision.
--
-- KEYS  epoch, deps, ovr, pol, log, due (the other keys of their dependencies have the same hash tag)
-- ARGV  id for a new epoch
-- Returns {now, epoch or '', dependencies to decide on, log entries {id, dependency, from, to, generation, reason}}.

local AGAIN, FORGET = 1000, 86400000

local now, prefix = clock(), string.match(KEYS[1], '^(.*:)')
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[6]) == 0 then
  return {int(now), '', {}, {}} -- nothing is known here, and a look makes nothing known
end
local epoch, used = memory(KEYS[1], ARGV[1], now)
redis.call('EXPIRE', KEYS[2], STATE_TTL)

local undecided, entries = {}, {}

local function breaker(member, name)
  local e, _, phase = head(redis.call('HGET', prefix .. 's:' .. name, 'b'))
  if e == epoch and (phase == 'o' or phase == 'r') then
    -- Whoever commits sets the next date; if nobody does, look again.
    remind(KEYS[6], member, now + AGAIN)
    undecided[#undecided + 1] = name
  else
    redis.call('ZREM', KEYS[6], member)
  end
end

local function expired(member, name, key)
  local v = redis.call('HGET', key, name)
  local _, deleted, till = record(v)
  if v and not deleted and key == KEYS[3] and till <= now then
    local b = redis.call('HGET', prefix .. 's:' .. name, 'b')
    entries[#entries + 1] = lapse(KEYS[3], KEYS[5], KEYS[6], name, v, b, epoch, now)
    return
  end
  if v and deleted and till <= now then
    redis.call('HDEL', key, name)
  end
  redis.call('ZREM', KEYS[6], member)
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', int(now), 'LIMIT', 0, 128)) do
  local kind, name = string.match(member, '^(%l):(.*)$')
  if kind == 'b' then
    breaker(member, name)
  else
    expired(member, name, kind == 'o' and KEYS[3] or KEYS[4])
  end
end

local gone = false
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now - FORGET), 'LIMIT', 0, 1000)) do
  local state = prefix .. 's:' .. name
  if standing(redis.call('HGET', KEYS[3], name), now) then
    redis.call('EXPIRE', state, STATE_TTL)
  else
    used = forget(KEYS[1], KEYS[2], KEYS[6], name, state, prefix .. 'p:' .. name, prefix .. 'i:' .. name,
      prefix .. 'v:' .. name, prefix .. 'h:' .. name, epoch, used)
    gone = true
  end
end
if gone then
  changed()
end
return {int(now), epoch, undecided, entries}
