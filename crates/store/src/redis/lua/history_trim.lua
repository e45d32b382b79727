-- Cuts the histories of up to 500 duties, and the group's audit trail, to what the store keeps.
--
-- ARGV[3...]  duty ids, escaped
-- reply    1

for i = 3, #ARGV do
  redis.call('LTRIM', root .. 'history:' .. ARGV[i], 0, HISTORY_SLOTS - 1)
end
redis.call('XTRIM', root .. 'audit', 'MAXLEN', '~', AUDIT_KEPT)
return 1
