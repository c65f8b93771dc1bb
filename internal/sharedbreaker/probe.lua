-- probe takes the results of trial requests and hands out permits for new ones. At any time the verdicts of a round
-- and the permits that are out add up to at most n, in the whole fleet.
--
-- KEYS  epoch, state, permits, ovr
-- ARGV  1 dependency, 2 "epoch,generation,h", 3 n, 4 successes that end the round well, 5 lease in ms,
--       6 JSON: results [token, outcome] each, asks by instance, tokens to give
-- Returns {0} if no such round is on, else {1, now, good, bad, {for each ask: token or '', hold in ms}}.
--
-- The permits hash holds r = "epoch,generation,good,bad", t:<token> = "lease ends,instance" and x:<instance> = until
-- when it gets no permit, because its probe failed. A round begins by finding the r of an older one.

local BLOCK, SHORT, LONG = 1000, 50, 1000
local SUCCESS, FAILURE = 1, 2

local e, generation, phase = head(redis.call('HGET', KEYS[2], 'b'))
if not e or e .. ',' .. generation .. ',' .. phase ~= ARGV[2] or e ~= redis.call('HGET', KEYS[1], 'id') then
  return {0}
end
local now, n, need, lease = clock(), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local args = cjson.decode(ARGV[6])

local good, bad, leases, out, blocked, drop, set = 0, 0, {}, 0, {}, {}, {}
local all = redis.call('HGETALL', KEYS[3])
local prefix, round = e .. ',' .. generation .. ',', false
for i = 1, #all, 2 do
  if all[i] == 'r' and string.sub(all[i + 1], 1, #prefix) == prefix then
    local g, w = string.match(all[i + 1], '(%d+),(%d+)$')
    good, bad, round = tonumber(g), tonumber(w), true
  end
end
for i = 1, #all, 2 do
  local kind, id = string.match(all[i], '^([tx]):(.*)$')
  if kind == 't' then
    local till, instance = string.match(all[i + 1], '^(%d+),(.*)$')
    if round and tonumber(till) > now then
      leases[id], out = {tonumber(till), instance}, out + 1
    else
      drop[#drop + 1] = all[i]
    end
  elseif kind == 'x' then
    if tonumber(all[i + 1]) > now then
      blocked[id] = tonumber(all[i + 1])
    else
      drop[#drop + 1] = all[i]
    end
  end
end

for _, result in ipairs(args.results or {}) do
  local held = leases[result[1]]
  if held then
    leases[result[1]], out = nil, out - 1
    drop[#drop + 1] = 't:' .. result[1]
    if result[2] == SUCCESS then
      good = good + 1
    elseif result[2] == FAILURE then
      bad = bad + 1
      blocked[held[2]] = now + BLOCK
      set[#set + 1] = 'x:' .. held[2]
      set[#set + 1] = int(now + BLOCK)
    end
  end
end

local over = good >= need or bad > n - need
local shut = (standing(redis.call('HGET', KEYS[4], ARGV[1]), now) or {}).mode == 'force_open'
local soonest = now + LONG
for _, held in pairs(leases) do
  soonest = math.min(soonest, held[1])
end
local answers = {}
local given = 0
for _, instance in ipairs(args.asks or {}) do
  local token, hold = '', 0
  if blocked[instance] then
    hold = math.max(blocked[instance] - now, SHORT)
  elseif shut then
    hold = LONG
  elseif over then
    hold = SHORT
  elseif out + good + bad < n then
    given, out = given + 1, out + 1
    token = args.tokens[given]
    set[#set + 1] = 't:' .. token
    set[#set + 1] = int(now + lease) .. ',' .. instance
    soonest = math.min(soonest, now + lease)
  else
    hold = math.max(soonest - now, SHORT)
  end
  answers[#answers + 1] = token
  answers[#answers + 1] = int(hold)
end

set[#set + 1] = 'r'
set[#set + 1] = prefix .. int(good) .. ',' .. int(bad)
if #drop > 0 then
  redis.call('HDEL', KEYS[3], unpack(drop))
end
redis.call('HSET', KEYS[3], unpack(set))
redis.call('EXPIRE', KEYS[3], STATE_TTL)
return {1, int(now), int(good), int(bad), answers}
