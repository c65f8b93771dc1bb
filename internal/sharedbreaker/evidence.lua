-- evidence returns everything that a decision to open rests on. It changes nothing.
--
-- KEYS  epoch, state, instances, display
-- ARGV  "epoch,generation,phase" that the decision is about
-- Returns {0} if the breaker has moved on, else {1, now, r, n, a, {60 buckets}, {sampled instances}, {display slots}}.

local b, r, n, a = unpack(redis.call('HMGET', KEYS[2], 'b', 'r', 'n', 'a'))
local e, generation, phase = head(b)
if not e or e .. ',' .. generation .. ',' .. phase ~= ARGV[1] or e ~= redis.call('HGET', KEYS[1], 'id') then
  return {0}
end
local fields = {}
for i = 0, 59 do
  fields[i + 1] = int(i)
end
local buckets = redis.call('HMGET', KEYS[2], unpack(fields))
for i = 1, #fields do
  buckets[i] = buckets[i] or ''
end
return {1, int(clock()), r or '', n or '', a or '0', buckets, redis.call('HVALS', KEYS[3]), redis.call('HVALS', KEYS[4])}
