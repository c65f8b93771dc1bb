-- budget.lua stands before every script of this package: how a budget lies in Redis.
--
-- KEYS     one hash per dependency, rp:{g<group>}:b:<name>
-- fields   h     = "latest,oldest,D,G,B,N,d,g,b,n"
--                  latest       latest time seen, ms; the budget never goes back behind it by less than SLACK
--                  oldest       first bucket that is remembered
--                  D, G, B, N   sums since the budget began: deposits, grants, debits, denied
--                  d, g, b, n   the same sums at the end of the bucket before oldest
--          <i>   = "D,G,B,N" at the end of bucket i, for every i from oldest to the one before latest's
--
-- A bucket is 500 ms of Redis's clock; its number is the time since 1970 / 500 ms. What happened in a span is the
-- difference of two sums, so a draw reads three fields and mostly writes one, however long the span. A budget whose
-- sums exceed LIMIT starts over, so that Redis never prints a number with an exponent.

local WIDTH, SLACK, MEMORY, LIMIT = 500, 1000, 256, 1e14
local SUMS = '(%d+),(%d+),(%d+),(%d+)'
local HEAD = '^(%d+),(%d+),' .. SUMS .. ',' .. SUMS .. '$'
SUMS = '^' .. SUMS .. '$'
local floor, format, match = math.floor, string.format, string.match

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + floor(tonumber(t[2]) / 1000)
end

-- empty is a budget that begins now.
local function empty(now)
  local current = floor(now / WIDTH)
  return {
    now = now, current = current, oldest = current, began = true,
    D = 0, G = 0, B = 0, N = 0, d = 0, g = 0, b = 0, n = 0, requests = 0,
  }
end

-- open reads a budget as it stands at now and changes nothing. It returns
--   now            the time that counts
--   current, last  bucket of now, bucket of the latest time seen
--   oldest, drop   first bucket to remember from now on; those from drop on can go (nil = none)
--   D, G, B, N     the sums now
--   d, g, b, n     the sums where the span of the grants begins
--   requests       D where the span of the requests begins
--   head           h as stored
--   began          true if nothing that is stored counts
-- A budget that nobody wrote, that has aged out, that does not parse, or whose clock ran back, is empty.
local function open(key, now, window, ttl)
  local first = floor((now - window - ttl) / WIDTH) -- outward: the bucket that the span of the grants begins in
  local before = floor((now - window) / WIDTH) -- inward: the span of the requests begins after this bucket
  local f = redis.call('HMGET', key, 'h', first - 1, before)
  if not f[1] then
    return empty(now)
  end
  local latest, oldest, D, G, B, N, d, g, b, n = match(f[1], HEAD)
  latest = tonumber(latest)
  if not latest or latest > now + SLACK then
    return empty(now)
  elseif latest > now then
    return open(key, latest, window, ttl)
  end
  oldest, D, G, B, N = tonumber(oldest), tonumber(D), tonumber(G), tonumber(B), tonumber(N)
  local last = floor(latest / WIDTH)
  if last < first or last < oldest or last - oldest > MEMORY or D + G + B + N > LIMIT then
    return empty(now)
  end

  local requests, drop = tonumber(d), nil
  if before >= last then
    requests = D
  elseif before >= oldest then
    requests = tonumber((match(f[3] or '', SUMS))) -- the first of its four
  end
  if oldest < first then
    drop, oldest = oldest, first
    d, g, b, n = match(f[2] or '', SUMS)
  end
  d, g, b, n = tonumber(d), tonumber(g), tonumber(b), tonumber(n)
  if not requests or not d then
    return empty(now) -- a sum is missing: somebody else wrote here
  end
  return {
    now = now, current = floor(now / WIDTH), last = last, oldest = oldest, drop = drop,
    D = D, G = G, B = B, N = N, d = d, g = g, b = b, n = n, requests = requests,
    head = f[1],
  }
end

-- sums returns "D,G,B,N" as they were stored, which is how they were at the end of every bucket since.
local function sums(a)
  return match(a.head, '^%d+,%d+,(%d+,%d+,%d+,%d+)')
end

-- allow is floor(requests * ratio / 1000000) + least; the whole millions apart, to stay exact below 2^53.
local function allow(requests, ratio, least)
  return floor(requests / 1000000) * ratio + floor(requests % 1000000 * ratio / 1000000) + least
end
