-- read returns a whole group. It changes nothing.
--
-- KEYS  epoch, deps, ovr, pol (the states and display counters of deps have the same hash tag)
-- ARGV  none
-- Returns {now, epoch or '', ovr as {dependency, record, ...}, pol likewise, rows {dependency, latest report, b, n, x,
-- then the display slots of the last 10 s}}.

local now, prefix = clock(), string.match(KEYS[1], '^(.*:)')
local second, slots = math.floor(now / 1000), {}
for back = 0, 9 do
  slots[back + 1] = int((second - back) % 40)
end
local deps, rows = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), {}
for i = 1, #deps, 2 do
  local row = redis.call('HMGET', prefix .. 's:' .. deps[i], 'b', 'n', 'x')
  row = {deps[i], deps[i + 1], row[1] or '', row[2] or '', row[3] or ''}
  if now - tonumber(deps[i + 1]) < 12000 then
    for _, v in ipairs(redis.call('HMGET', prefix .. 'v:' .. deps[i], unpack(slots))) do
      row[#row + 1] = v or ''
    end
  end
  rows[#rows + 1] = row
end
local epoch = redis.call('HGET', KEYS[1], 'id') or ''
return {int(now), epoch, redis.call('HGETALL', KEYS[3]), redis.call('HGETALL', KEYS[4]), rows}
