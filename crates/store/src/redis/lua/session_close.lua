-- Ends a session and frees up to 500 of its holds; session_free frees the rest.
--
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  the nonce           ARGV[6]  the reason
-- reply    {1 when it was open or 0, how many holds were freed, 1 when there are more or 0}
--
-- Holds left by an earlier, interrupted close are freed even if the session is gone.

local instance, escaped, nonce, reason = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local session = root .. 'session:' .. escaped
local open = redis.call('HGET', session, 'nonce') == nonce
local holds, more = holds_of(nonce, instance, 500)
local last = last_entry()
if not last then return damaged(root .. 'audit') end
redis.call('SISMEMBER', root .. 'members', escaped)

local ms = unix_time()
last = free(holds, nonce, instance, 'released', reason, last, ms)
if open then
  redis.call('DEL', session, root .. 'node:' .. plain(escaped))
  redis.call('SREM', root .. 'members', escaped)
  record(last, 'left', instance, '', '', reason, ms)
end
if open or #holds > 0 then hint() end
return { open and 1 or 0, #holds, more and 1 or 0 }
