-- series returns the history of a dependency. It changes nothing.
--
-- KEYS  display, history, deps
-- ARGV  1 dependency, 2 steps wanted, the current one included; at most 240
-- Returns {0} for an unknown dependency, else {1, now, the step under way or '', {steps}, {seconds}}, as board.lua
-- describes them.

local STEP, STEPS = 15, 240

if not redis.call('ZSCORE', KEYS[3], ARGV[1]) then
  return {0}
end
local now, fields = clock(), {}
local step = math.floor(now / 1000 / STEP)
for back = 0, tonumber(ARGV[2]) - 1 do
  fields[back + 1] = int((step - back) % STEPS)
end
local steps = redis.call('HMGET', KEYS[2], unpack(fields))
for i = 1, #fields do
  steps[i] = steps[i] or ''
end
return {1, int(now), redis.call('HGET', KEYS[1], 'f') or '', steps, redis.call('HVALS', KEYS[1])}
