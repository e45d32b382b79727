-- Reads up to 500 reports.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- KEYS[2...]  reports
-- reply    for each {epoch, number, instance, document, unix_ms}, or {} when there is none

local reply = {}
for i = 2, #KEYS do
  local stored = redis.call('HMGET', KEYS[i],
    'epoch', 'number', 'instance', 'document', 'unix_ms')
  reply[i - 1] = stored[1] and stored or {}
end
return reply
