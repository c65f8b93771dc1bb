-- chains notes that chains of retrying layers were seen, and forgets those that were not seen for long.
--
-- KEYS  chains: hash of chain -> 'seen in ms,requests'
-- ARGV  ms after which a chain is forgotten, most chains; then chain, requests for each
-- Returns the time in ms as a string.

local now, keep, most = clock(), tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[1], ARGV[i])
  local requests = known and tonumber(string.match(known, ',(%d+)$')) or 0
  redis.call('HSET', KEYS[1], ARGV[i], int(now) .. ',' .. int(requests + ARGV[i + 1]))
end
redis.call('PEXPIRE', KEYS[1], int(keep))

if redis.call('HLEN', KEYS[1]) > most then
  local all, list = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #all, 2 do
    list[#list + 1] = { tonumber(string.match(all[i + 1], '^(%d+),')), all[i] }
  end
  table.sort(list, function(a, b) return a[1] > b[1] end)
  for i = 1, #list do
    if i > most or list[i][1] <= now - keep then
      redis.call('HDEL', KEYS[1], list[i][2])
    end
  end
end
return int(now)
