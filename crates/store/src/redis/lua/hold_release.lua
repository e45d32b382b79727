-- Releases up to 500 holds of a session.
--
-- ARGV[3]  the instance        ARGV[4]  the nonce
-- ARGV[5]  the reason
-- ARGV[6...]  n duty ids, escaped, then their n epochs; epoch 0 never matches
-- reply    for each hold 1 (freed), 2 (had ended before) or 3 (not yours)

local instance, nonce, reason = ARGV[3], ARGV[4], ARGV[5]
local n = (#ARGV - 5) / 2
local leases = mget('lease', 6, n)
local fences = mget('fence', 6, n)
local grants = grants_of(6, n)
local last = last_entry()
if not last then return damaged(root .. 'audit') end

local ms, reply, text = unix_time(), {}, grant_text(nonce, 'free', instance)
local freed = false
for i = 1, n do
  local id, epoch, grant = ARGV[5 + i], ARGV[5 + n + i], grant_of(grants[i])
  if fences[i] ~= epoch or grant.nonce ~= nonce or (leases[i] and leases[i] ~= instance) then
    reply[i] = 3
  elseif leases[i] and grant.held then
    end_lease(id, instance)
    redis.call('HSET', root .. 'grants', id, text)
    last = record(last, 'released', instance, id, epoch, reason, ms)
    reply[i], freed = 1, true
  else
    reply[i] = 2
  end
end
if freed then hint() end
return reply
