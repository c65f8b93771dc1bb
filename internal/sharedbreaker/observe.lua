-- observe adds what a replica learned to the counters of up to 128 dependencies of a group, and returns what the trip
-- rules need to decide. It decides nothing itself.
--
-- KEYS  epoch, deps, ovr, pol, then for each report: state, permits, instances, display, history
-- ARGV  id for a new epoch, then each report as JSON:
--         name       the dependency
--         look       true: return the same, but count nothing and register nothing
--         min        outcomes that the span must hold
--         counts     [epoch, generation, successes, failures, slow] each
--         display    the display counters
--         instances  [id, rank, verdict, epoch, generation, override revision] each
--         defer      ms for which the dependency asked not to be retried; at most an hour
--         level      more instances than the sample takes reported at the rank below this one
-- Returns {now, epoch, {for each report: b, r, n, buckets of the span "tag,index,s,f,slow;...", ovr, pol, latest
-- report, x}}; what there is not is ''. A breaker of an older epoch is returned as '' to who only looks.

local BUCKETS, DISPLAY, SAMPLE, ROOM, LIVE, DEFER = 60, 40, 128, 48, 30000, 3600000

local now = clock()
local epoch, used = memory(KEYS[1], ARGV[1], now)
local tick, second = math.floor(now / 500), math.floor(now / 1000)

-- What every report needs is written once. Counters come in bounds in which .. writes them exactly.
local moment, slots, ticks = int(now), {}, {}

local function slot(back)
  slots[back] = slots[back] or int((tick - back) % BUCKETS)
  return slots[back]
end

local function prefix(tag, back)
  ticks[back] = ticks[back] or ',' .. int(tick - back) .. ','
  return tag .. ticks[back]
end

local newest = {slot(0), slot(1), slot(2), slot(3)}

-- count adds to the current bucket and returns it, and "tag,run,version" after it.
local function count(tag, v, r, successes, failures, slow)
  local p = prefix(tag, 0)
  if v and string.sub(v, 1, #p) == p then
    local s, f, w = string.match(v, '^(%d+),(%d+),(%d+)$', #p + 1)
    v = p .. s + successes .. ',' .. f + failures .. ',' .. w + slow
  else
    v = p .. successes .. ',' .. failures .. ',' .. slow
  end
  local t, run, version = string.match(r or '', '^(%w+),(%d+),(%d+)$')
  if t ~= tag then
    run, version = 0, 0
  end
  -- What was merged has no order: any success ends the run.
  run = successes > 0 and 0 or run + failures
  return v, tag .. ',' .. run .. ',' .. version + 1
end

-- span collects the buckets of the shortest span that holds min outcomes, as policy.Window.Span does, and reads the
-- older ones only if it has to. h holds the newest four from its index first on.
local function span(state, tag, h, first, min)
  local list, total, failed = {}, 0, 0
  local offset = first
  for back = 0, BUCKETS - 1 do
    if back >= 3 and total >= min then
      break
    end
    if back == 4 or back == 16 then
      local fields = {}
      for i = back, back == 4 and 15 or BUCKETS - 1 do
        fields[#fields + 1] = slot(i)
      end
      h, offset = redis.call('HMGET', state, unpack(fields)), 1 - back
    end
    local v = h[offset + back]
    if v then
      local p = prefix(tag, back)
      if string.sub(v, 1, #p) == p then
        local s, f = string.match(v, '^(%d+),(%d+),', #p + 1)
        total, failed = total + s + f, failed + f
        list[#list + 1] = v
      end
    end
  end
  return table.concat(list, ';'), total > 0 and math.floor(failed * 1000000 / total) or 0
end

local shown, second_prefix = int(second % DISPLAY), int(second) .. ','

local STEP, STEPS = 15, 240
local step = math.floor(second / STEP)

-- fold adds up the seconds of a step that is over. Nothing was written since its last one, so the ring still has them.
local function fold(display, history, over)
  local fields, sum = {}, {}
  for s = over * STEP, over * STEP + STEP - 1 do
    fields[#fields + 1] = int(s % DISPLAY)
  end
  for _, v in ipairs(redis.call('HMGET', display, unpack(fields))) do
    local old = v and cjson.decode('[' .. v .. ']') or {-1}
    if math.floor(old[1] / STEP) == over then
      for i = 2, #old do
        sum[i - 1] = (sum[i - 1] or 0) + old[i]
      end
    end
  end
  for i, c in ipairs(sum) do
    sum[i] = int(c)
  end
  redis.call('HSET', history, int(over % STEPS), int(over) .. ',' .. table.concat(sum, ','))
  redis.call('EXPIRE', history, SERIES_TTL)
end

local function show(display, history, counters)
  local v, over = unpack(redis.call('HMGET', display, shown, 'f'))
  if over ~= int(step) then
    if over then
      fold(display, history, tonumber(over))
    end
    redis.call('HSET', display, 'f', int(step))
  end
  if v and string.sub(v, 1, #second_prefix) == second_prefix then
    local old = cjson.decode('[' .. v .. ']')
    for i, c in ipairs(counters) do
      counters[i] = c + (old[i + 1] or 0)
    end
  end
  redis.call('HSET', display, shown, second_prefix .. table.concat(counters, ','))
end

-- remember writes down who reported, and returns whether that were too many.
local function remember(sample, instances, level, generation, tag)
  local set, silent, ids, mark = {}, {}, {}, epoch .. ':' .. tag
  for _, x in ipairs(instances) do
    local id, rank, verdict = x[1], x[2], x[3]
    local current = verdict > 0 and x[4] == epoch and x[5] == generation
    if rank >= level and current then
      set[#set + 1] = id
      set[#set + 1] = rank .. ',' .. moment .. ',' .. moment .. (verdict == 2 and ',1,' or ',0,') .. mark .. ','
        .. int(x[6])
    elseif rank >= level then
      silent[#silent + 1], ids[#ids + 1] = x, id
    end
  end
  if #ids > 0 then -- their last verdict stands
    for i, old in ipairs(redis.call('HMGET', sample, unpack(ids))) do
      local x = silent[i]
      set[#set + 1] = x[1]
      set[#set + 1] = x[2] .. ',' .. moment .. ',' .. (old and string.match(old, '^%d+,%d+,(%d+,%d,[^,]*),') or '0,0,')
        .. ',' .. int(x[6])
    end
  end
  return #set > 0 and redis.call('HSET', sample, unpack(set)) > 0 and redis.call('HLEN', sample) > SAMPLE
end

-- survey drops from the sample who has been silent or is one too many, and counts the rest. Instances of a rank below
-- level are not sampled. After the level fell from older, the ranks that are new in the sample are counted only once
-- everybody had the time to report.
local function survey(sample, level, older, since, tag, revision)
  local all = redis.call('HGETALL', sample)
  local live, gone, above = {}, {}, 0
  tag = epoch .. ':' .. tag
  for i = 1, #all, 2 do
    local rank, seen, failing, t, applied = string.match(all[i + 1], '^(%d+),(%d+),%d+,(%d),([^,]*),(%d+)$')
    rank, seen = tonumber(rank), tonumber(seen)
    if now - seen > LIVE or seen > now + 1000 then
      gone[#gone + 1] = all[i]
    else
      live[#live + 1] = {all[i], rank, failing == '1' and t == tag, tonumber(applied)}
    end
  end
  for _ = 1, 32 do
    above = 0
    for _, x in ipairs(live) do
      above = above + (x[2] >= level and 1 or 0)
    end
    if above <= SAMPLE then
      break
    end
    level = level + 1
  end
  if level > 0 and above < ROOM and now - since >= LIVE then
    older, since = level, now
    while level > 0 and above < ROOM do
      level, above = level - 1, above * 2
    end
  end
  local counted = now - since < LIVE and math.max(level, older) or level
  local instances, failing, applied = 0, 0, 0
  for _, x in ipairs(live) do
    if x[2] < level then
      gone[#gone + 1] = x[1]
    elseif x[2] >= counted then
      instances = instances + 1
      failing = failing + (x[3] and 1 or 0)
      applied = applied + (revision > 0 and x[4] == revision and 1 or 0)
    end
  end
  if #gone > 0 then
    redis.call('HDEL', sample, unpack(gone))
  end
  local scale = 2 ^ counted
  return int(instances * scale) .. ',' .. int(failing * scale) .. ',' .. int(applied * scale) .. ',' .. int(revision)
    .. ',' .. int(level) .. ',' .. int(older) .. ',' .. int(since)
end

local touched = false

local function observe(report, state, permits, sample, display, history, override)
  local h = redis.call('HMGET', state, 'b', 'r', 'n', newest[1], newest[2], newest[3], newest[4], 'x')
  local b, r, n, x = h[1], h[2], h[3], h[8]
  local e, generation, phase = head(b)
  if e ~= epoch then
    if report.look then
      return '', '', '', '', ''
    end
    b = register(report.name, state, permits, KEYS[2], epoch, used, now)
    e, generation, phase = head(b)
    h, r, n, x = {}, false, false, false
  end
  local tag, write = generation .. phase, {}
  generation = tonumber(generation)

  local successes, failures, slow = 0, 0, 0
  for _, c in ipairs(report.counts or {}) do
    if c[1] == epoch and c[2] == generation then
      successes, failures, slow = successes + c[3], failures + c[4], slow + c[5]
    end
  end
  if successes + failures > 0 and (phase == 'c' or phase == 'r') then
    h[4], r = count(tag, h[4], r, successes, failures, slow)
    write = {newest[1], h[4], 'r', r}
  end
  local buckets, rate = span(state, tag, h, 4, report.min)

  if report.look then
    return b, r or '', n or '', buckets, x or ''
  end
  if report.defer then
    local before = now + math.min(report.defer, DEFER)
    if before > tonumber(x or 0) then
      x = int(before)
      write[#write + 1] = 'x'
      write[#write + 1] = x
      changed()
    end
  end
  if report.display then
    show(display, history, report.display)
  end
  local at, t, level, older, since = string.match(n or '', '^(%d+),(%w+),%d+,%d+,%d+,%d+,%d+,(%d+),(%d+),(%d+)$')
  at, level, older, since = tonumber(at or 0), tonumber(level or 0), tonumber(older or 0), tonumber(since or 0)
  local crowded = false
  if report.instances then
    if (report.level or 0) > level then
      level, crowded = report.level, true
    end
    crowded = remember(sample, report.instances, level, generation, tag) or crowded
  end
  if crowded or t ~= tag or now - at >= 1000 then
    local revision, deleted, till = record(override)
    if deleted or till <= now then
      revision = 0
    end
    n = moment .. ',' .. tag .. ',' .. int(rate) .. ',' .. survey(sample, level, older, since, tag, revision)
    write[#write + 1] = 'n'
    write[#write + 1] = n
    redis.call('ZADD', KEYS[2], moment, report.name)
    touched = true
    redis.call('EXPIRE', state, STATE_TTL)
    redis.call('EXPIRE', sample, RING_TTL)
    redis.call('EXPIRE', display, SERIES_TTL)
  end
  if #write > 0 then
    redis.call('HSET', state, unpack(write))
  end
  return b, r or '', n, buckets, x or ''
end

local reports, names, rows = {}, {}, {}
for i = 2, #ARGV do
  reports[i - 1] = cjson.decode(ARGV[i])
  names[i - 1] = reports[i - 1].name
end
local overrides = redis.call('HMGET', KEYS[3], unpack(names))
local policies = redis.call('HMGET', KEYS[4], unpack(names))
for i, report in ipairs(reports) do
  local k = 5 * i - 1
  local b, r, n, buckets, x = observe(report, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], overrides[i])
  local last = moment
  if report.look then
    last = redis.call('ZSCORE', KEYS[2], report.name) or ''
  end
  rows[i] = {b, r, n, buckets, overrides[i] or '', policies[i] or '', last, x}
end
if touched then
  redis.call('EXPIRE', KEYS[2], STATE_TTL)
end
return {moment, epoch, rows}
