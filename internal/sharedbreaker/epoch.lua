-- epoch begins a new epoch of a group, unless somebody did already.
--
-- KEYS  epoch
-- ARGV  id for the new epoch, the epoch that is to end ('' = any)
-- Returns the epoch that is current now.

local id = redis.call('HGET', KEYS[1], 'id')
if id and ARGV[2] ~= '' and id ~= ARGV[2] then
  return id
end
begin(KEYS[1], ARGV[1], clock())
return ARGV[1]
