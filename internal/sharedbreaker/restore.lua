-- restore writes back what a store lost of overrides, policies and their tombstones. Of two records the higher
-- revision wins, and what has expired stays away.
--
-- KEYS  epoch, deps, ovr, pol, due
-- ARGV  id for a new epoch, then each record as JSON: [kind, dependency, revision, deleted, until, json]
-- Returns the number of records that were written.

local now, written = clock(), 0
memory(KEYS[1], ARGV[1], now)
for i = 2, #ARGV do
  local kind, name, revision, deleted, till, json = unpack(cjson.decode(ARGV[i]))
  local key, member = KEYS[3], 'o:' .. name
  if kind == 'policy' then
    key, member = KEYS[4], 'q:' .. name
  end
  local expired = till <= now and (till > 0 or deleted == 1 or kind ~= 'policy')
  local there = redis.call('HGET', key, name)
  if not expired and (not there or record(there) < revision) then
    redis.call('HSET', key, name, int(revision) .. ',' .. int(deleted) .. ',' .. int(till) .. ',' .. json)
    if till > 0 then
      remind(KEYS[5], member, till)
    else
      redis.call('ZREM', KEYS[5], member)
    end
    if deleted == 0 then
      redis.call('ZADD', KEYS[2], 'NX', int(now), name)
      redis.call('EXPIRE', KEYS[2], STATE_TTL)
    end
    written = written + 1
  end
end
if written > 0 then
  changed()
end
return written
