-- Reads up to 500 reports.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- KEYS[2...]  n reports, then the n fences of their duties
-- reply    for each {epoch, number, instance, document, unix_ms}, or {} when there is none
--
-- A report without a fence was left by an older version that forgot the duty.

local reply, n = {}, (#KEYS - 1) / 2
for i = 1, n do
  local stored = redis.call('HMGET', KEYS[1 + i],
    'epoch', 'number', 'instance', 'document', 'unix_ms')
  local is_known = redis.call('EXISTS', KEYS[1 + n + i]) == 1
  reply[i] = is_known and stored[1] and stored or {}
end
return reply
