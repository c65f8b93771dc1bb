-- draw.lua books what was reported for some dependencies of a group and grants retries out of what is left.
--
-- KEYS      the budgets (see budget.lua); one that is named twice is served twice, in order
-- ARGV      7 for each key: deposits, debits, want; ratio in ppm, floor, window in ms, grant_ttl in ms
-- returns   Redis TIME in ms, then 7 for each key: granted, hold in ms; requests, grants, debits, denied, allowed
--
-- Not idempotent.

local HOLD_MIN, HOLD_MAX = 100, 1000
local SPARE = 5000 -- ms that a key outlives what it remembers

-- spent is what had been granted and debited by the end of bucket i, since the budget began; sum is field i.
local function spent(a, i, sum)
  local _, G, B
  if i < a.oldest then
    return a.g + a.b
  elseif a.began or i >= a.current then
    return a.G + a.B
  elseif i < a.last then
    _, G, B = match(sum or '', SUMS)
  else
    _, G, B = match(sums(a), SUMS)
  end
  return G and G + B
end

-- hold is the time until need grants and debits have aged out.
local function hold(key, a, span, need)
  local first, wait = floor((a.now - span) / WIDTH), WIDTH - (a.now - span) % WIDTH -- of 1 to 500 ms
  local f = redis.call('HMGET', key, first, first + 1)
  for i = 1, 2 do
    local total = spent(a, first + i - 1, f[i])
    if total and total - a.g - a.b >= need then
      return math.max(wait, HOLD_MIN)
    end
    wait = wait + WIDTH
  end
  return HOLD_MAX
end

-- save writes the budget: one field, and when a new bucket has begun, the sums at the end of those before it.
local function save(key, a, span)
  local fields = {
    'h', format('%d,%d,%d,%d,%d,%d,%d,%d,%d,%d', a.now, a.oldest, a.D, a.G, a.B, a.N, a.d, a.g, a.b, a.n),
  }
  if a.began then
    redis.call('DEL', key)
  elseif a.last < a.current then
    local n, stored = 2, sums(a)
    for i = math.max(a.last, a.oldest), a.current - 1 do
      fields[n + 1], fields[n + 2] = i, stored
      n = n + 2
    end
  end
  redis.call('HSET', key, unpack(fields))
  if a.drop then
    local old = {}
    for i = a.drop, math.min(a.oldest, a.last) - 1 do
      old[#old + 1] = i
    end
    redis.call('HDEL', key, unpack(old))
  end
  if a.began or a.last < a.current then
    redis.call('PEXPIRE', key, span + SPARE)
  end
end

local now = clock()
local reply, r = { now }, 1
for i, key in ipairs(KEYS) do
  local j = 7 * i
  local want, ratio, least = tonumber(ARGV[j - 4]), tonumber(ARGV[j - 3]), tonumber(ARGV[j - 2])
  local window, ttl = tonumber(ARGV[j - 1]), tonumber(ARGV[j])
  local a = open(key, now, window, ttl)
  a.D, a.B = a.D + tonumber(ARGV[j - 6]), a.B + tonumber(ARGV[j - 5])
  local requests = a.D - a.requests
  local allowed = allow(requests, ratio, least)
  local left = allowed - (a.G - a.g) - (a.B - a.b)
  local granted, wait = math.min(want, math.max(left, 0)), 0
  a.G, a.N = a.G + granted, a.N + want - granted
  if granted < want then
    wait = hold(key, a, window + ttl, 1 + granted - left)
  end
  save(key, a, window + ttl)
  reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = granted, wait, requests, a.G - a.g
  reply[r + 5], reply[r + 6], reply[r + 7] = a.B - a.b, a.N - a.n, allowed
  r = r + 7
end
return reply
