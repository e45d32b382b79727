-- Frees up to 500 holds left by an ended session.
--
-- ARGV[3]  the instance        ARGV[4]  the nonce
-- ARGV[5]  the kind of audit entry, released or evicted
-- ARGV[6]  the reason
-- reply    {how many holds were freed, 1 when there are more or 0}

local holds, more = holds_of(ARGV[4], ARGV[3], 500)
local last = last_entry()
if not last then return damaged(root .. 'audit') end
free(holds, ARGV[4], ARGV[3], ARGV[5], ARGV[6], last, (unix_time()))
if #holds > 0 then hint() end
return { #holds, more and 1 or 0 }
