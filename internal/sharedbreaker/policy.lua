-- policy writes a dependency's policy, or removes it.
--
-- KEYS  epoch, deps, pol, due, state, permits
-- ARGV  1 id for a new epoch, 2 dependency, 3 version expected (-1 = any, 0 = none), 4 JSON ('' = remove), 5 when the order is
--       too old
-- Returns {'ok', version}, {'conflict'}, {'missing'} or {'late'}.

if late(ARGV[5]) then
  return {'late'}
end

local now, name = clock(), ARGV[2]
local v = redis.call('HGET', KEYS[3], name)
local version, deleted = record(v)
local there = v and not deleted
if ARGV[4] == '' and not there then
  return {'missing'}
end
local expected = tonumber(ARGV[3])
if expected >= 0 and expected ~= (there and version or 0) then
  return {'conflict'}
end
local epoch, used = memory(KEYS[1], ARGV[1], now)
version = math.max(version + 1, now)
if ARGV[4] == '' then
  redis.call('HSET', KEYS[3], name, int(version) .. ',1,' .. int(now + TOMBSTONE) .. ',')
  remind(KEYS[4], 'q:' .. name, now + TOMBSTONE)
else
  if head(redis.call('HGET', KEYS[5], 'b')) ~= epoch then
    register(name, KEYS[5], KEYS[6], KEYS[2], epoch, used, now)
  end
  redis.call('HSET', KEYS[3], name, int(version) .. ',0,0,' .. ARGV[4])
  redis.call('ZREM', KEYS[4], 'q:' .. name)
end
changed()
return {'ok', int(version)}
