-- clock tells Redis's time in ms. It is a script and not TIME, because on a cluster each master has its own.
--
-- KEYS  any key of the group
-- ARGV  none
-- Returns the time as a string.

return int(clock())
