-- forget drops everything about a dependency but its log entries.
--
-- KEYS  epoch, deps, ovr, pol, due, state, permits, instances, display, history
-- ARGV  id for a new epoch, dependency, when the order is too old
-- Returns 'ok', 'in_force' while an override stands, 'missing' or 'late'.

if late(ARGV[3]) then
  return 'late'
end

local now, name = clock(), ARGV[2]
if standing(redis.call('HGET', KEYS[3], name), now) then
  return 'in_force'
end
if not redis.call('ZSCORE', KEYS[2], name) then
  return 'missing'
end
local epoch, used = memory(KEYS[1], ARGV[1], now)
forget(KEYS[1], KEYS[2], KEYS[5], name, KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], epoch, used)
local version, deleted = record(redis.call('HGET', KEYS[4], name))
if version > 0 and not deleted then
  redis.call('HSET', KEYS[4], name, int(math.max(version + 1, now)) .. ',1,' .. int(now + TOMBSTONE) .. ',')
  remind(KEYS[5], 'q:' .. name, now + TOMBSTONE)
end
changed()
return 'ok'
