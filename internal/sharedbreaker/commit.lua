-- commit swaps a breaker's state if it is still the one that was decided on. Of many that try, one wins; it alone
-- writes the transition log.
--
-- KEYS  epoch, state, log, due
-- ARGV  1 dependency, 2 "epoch,generation,phase" decided on, 3 version of the rule counters decided on ('' = any),
--       4 the new b, 5 when it needs a look without traffic (0 = never), 6 cause ('' = nothing to log), 7 from, 8 to,
--       9 new generation, 10 reason, 11 actor, 12 when an operator's order is too old ('' = never)
-- Returns {1, now, id of the log entry}, {0} if somebody was faster, or {2} if it is too late.

if late(ARGV[12]) then
  return {2}
end

local b, r = unpack(redis.call('HMGET', KEYS[2], 'b', 'r'))
local e, generation, phase = head(b)
if not e or e .. ',' .. generation .. ',' .. phase ~= ARGV[2] or e ~= redis.call('HGET', KEYS[1], 'id') then
  return {0}
end
local tag, version = string.match(r or '', '^(%w+),%d+,(%d+)$')
if ARGV[3] ~= '' and (tag == generation .. phase and version or '0') ~= ARGV[3] then
  return {0}
end
local now, id = clock(), ''
redis.call('HSET', KEYS[2], 'b', ARGV[4])
if ARGV[6] == 'reset' then
  redis.call('HDEL', KEYS[2], 'x')
end
redis.call('EXPIRE', KEYS[2], STATE_TTL)
if ARGV[5] == '0' then
  redis.call('ZREM', KEYS[4], 'b:' .. ARGV[1])
else
  remind(KEYS[4], 'b:' .. ARGV[1], tonumber(ARGV[5]))
end
if ARGV[6] == '' then
  changed()
else
  id = note(KEYS[3], ARGV[1], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[6], ARGV[11], now)
end
return {1, int(now), id}
