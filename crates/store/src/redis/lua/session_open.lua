-- Makes an instance a member of a group.
--
-- KEYS[2]  the set of groups
-- ARGV[3]  the group, escaped
-- ARGV[4]  the instance        ARGV[5]  the same, escaped
-- ARGV[6]  the nonce           ARGV[7]  the TTL in ms
-- ARGV[8]  the note            ARGV[9]  how long, in ms, ended sessions are remembered
-- ARGV[10]  the session's first mark
-- reply    open, taken, spent or evicted

local instance, escaped, nonce, ttl = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local session, node = root .. 'session:' .. escaped, root .. 'node:' .. plain(escaped)
local barred, spent = root .. 'barred:' .. escaped, root .. 'spent:' .. nonce

if redis.call('EXISTS', barred) == 1 then
  -- Each attempt prolongs the bar.
  redis.call('PEXPIRE', barred, ARGV[9])
  return 'evicted'
end
local stored = redis.call('HGET', session, 'nonce')
if stored == nonce then
  -- A retry: the reply to the first call was lost.
  redis.call('PEXPIRE', session, ttl)
  redis.call('SET', node, '1', 'PX', ttl)
  redis.call('HSET', session, 'note', ARGV[8], 'ttl', ttl)
  hint()
  return 'open'
end
if stored then return 'taken' end
-- No script runs when a session expires, so a nonce is recorded as spent when first used.
if redis.call('EXISTS', spent) == 1 then return 'spent' end
-- A foreign instance has the same name.
if redis.call('EXISTS', node) == 1 then return 'taken' end

local last = last_entry()
if not last then return damaged(root .. 'audit') end
redis.call('SISMEMBER', root .. 'members', escaped)
redis.call('SISMEMBER', KEYS[2], ARGV[3])
redis.call('HSET', session, 'nonce', nonce, 'note', ARGV[8], 'ttl', ttl, 'evicted', '0',
  'mark', ARGV[10], 'plain', '1')
redis.call('PEXPIRE', session, ttl)
redis.call('SET', node, '1', 'PX', ttl)
redis.call('SET', spent, '1', 'PX', ARGV[9])
redis.call('SADD', root .. 'members', escaped)
redis.call('SADD', KEYS[2], ARGV[3])
record(last, 'joined', instance, '', '', 'open', (unix_time()))
hint()
return 'open'
