-- override writes an override over a dependency, or removes it.
--
-- KEYS  epoch, deps, ovr, pol, log, due, state, permits
-- ARGV  1 id for a new epoch, 2 dependency, 3 revision expected (-1 = any, 0 = none), 4 time to live in ms,
--       5 JSON of mode, reason and actor ('' = remove), 6 actor, 7 when the order is too old
-- Returns {'ok', now, epoch, row as of observe, log entry: id, from, to, generation}, {'conflict'}, {'missing'} or
-- {'late'}.

if late(ARGV[7]) then
  return {'late'}
end

local now, name = clock(), ARGV[2]
local v = redis.call('HGET', KEYS[3], name)
local revision, deleted, till = record(v)
local there = v and not deleted and till > now
if ARGV[5] == '' and not there then
  return {'missing'}
end
local expected = tonumber(ARGV[3])
if expected >= 0 and expected ~= (there and revision or 0) then
  return {'conflict'}
end

local epoch, used = memory(KEYS[1], ARGV[1], now)
local b, n = unpack(redis.call('HMGET', KEYS[7], 'b', 'n'))
if head(b) ~= epoch then
  b, n = register(name, KEYS[7], KEYS[8], KEYS[2], epoch, used, now), ''
end
local from
if there then
  from = forced(standing(v, now).mode, b, epoch, now)
else
  if v and not deleted then
    lapse(KEYS[3], KEYS[5], KEYS[6], name, v, b, epoch, now)
  end
  from = automatic(b, epoch, now)
end

-- Redis's time in the revision lets it grow even over a store that came back empty.
revision = math.max(revision + 1, now)
local to, reason = automatic(b, epoch, now), ''
if ARGV[5] == '' then
  till = now + TOMBSTONE
  v = int(revision) .. ',1,' .. int(till) .. ','
else
  local o = cjson.decode(ARGV[5])
  o.created_ms = now
  till, to, reason = now + tonumber(ARGV[4]), forced(o.mode, b, epoch, now), o.reason
  v = int(revision) .. ',0,' .. int(till) .. ',' .. cjson.encode(o)
end
redis.call('HSET', KEYS[3], name, v)
remind(KEYS[6], 'o:' .. name, till)
local _, generation = head(b)
local id = note(KEYS[5], name, from, to, generation, reason, 'operator', ARGV[6], now)
local policy = redis.call('HGET', KEYS[4], name) or ''
local row = {b, '', n or '', '', v, policy, redis.call('ZSCORE', KEYS[2], name) or '', redis.call('HGET', KEYS[7], 'x') or ''}
return {'ok', int(now), epoch, row, id, from, to, generation}
