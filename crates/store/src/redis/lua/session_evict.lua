-- Evicts an instance from a group. With `now`, its session ends and up to 500 of its holds are
-- freed; session_free frees the rest.
--
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  now or ttl          ARGV[6]  the reason
-- ARGV[7]  how long, in ms, it stays barred
-- reply    {} without a live session; else {its nonce, how many holds ended, 1 when there are more}

local instance, escaped, reason = ARGV[3], ARGV[4], ARGV[6]
local session, barred = root .. 'session:' .. escaped, root .. 'barred:' .. escaped
local nonce = redis.call('HGET', session, 'nonce')
local first = redis.call('EXISTS', barred) == 0
local now = ARGV[5] == 'now'
local holds, more = {}, false
if nonce and now then holds, more = holds_of(nonce, instance, 500) end
local last = last_entry()
if not last then return damaged(root .. 'audit') end
redis.call('SISMEMBER', root .. 'members', escaped)

local ms = unix_time()
redis.call('SET', barred, '1', 'PX', ARGV[7])
if first then last = record(last, 'evicted', instance, '', '', reason, ms) end
if nonce and now then
  free(holds, nonce, instance, 'evicted', reason, last, ms)
  redis.call('DEL', session, root .. 'node:' .. plain(escaped), root .. 'node:' .. escaped)
  redis.call('SREM', root .. 'members', escaped)
elseif nonce then
  redis.call('HSET', session, 'evicted', '1')
end
hint()
if not nonce then return {} end
return { nonce, #holds, more and 1 or 0 }
