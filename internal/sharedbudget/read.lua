-- read.lua tells how the budgets of some dependencies of a group stand. It changes nothing.
--
-- KEYS      the budgets (see budget.lua)
-- ARGV      4 for each key: ratio in ppm, floor, window in ms, grant_ttl in ms
-- returns   5 for each key: requests, grants, debits, denied, allowed

local now = clock()
local reply, r = {}, 0
for i, key in ipairs(KEYS) do
  local j = 4 * i
  local a = open(key, now, tonumber(ARGV[j - 1]), tonumber(ARGV[j]))
  local requests = a.D - a.requests
  reply[r + 1], reply[r + 2], reply[r + 3] = requests, a.G - a.g, a.B - a.b
  reply[r + 4], reply[r + 5] = a.N - a.n, allow(requests, tonumber(ARGV[j - 3]), tonumber(ARGV[j - 2]))
  r = r + 5
end
return reply
