-- Stores up to 500 reports under holds of one session.
--
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  the nonce
-- ARGV[6]  n, then n duty ids, escaped, their n epochs (0 never matches),
--          their n numbers and n documents
-- reply    for each two values: 1, 0 (stored); 2, the newest epoch (fenced)

local instance, nonce, n = ARGV[3], ARGV[5], tonumber(ARGV[6])
local live = redis.call('HGET', root .. 'session:' .. ARGV[4], 'nonce') == nonce
local leases = mget('lease', 7, n)
local fences, fence_keys = mget('fence', 7, n)
local reply, stored = {}, {}
for i = 1, n do
  local id, epoch, at = ARGV[6 + i], ARGV[6 + n + i], 2 * i - 1
  local checkpoint, key = root .. 'checkpoint:' .. id, root .. 'report:' .. id
  local committed = count(redis.call('HGET', checkpoint, 'epoch'))
  local fence = count(fences[i])
  if not committed then return damaged(checkpoint) end
  if not fence then return damaged(fence_keys[i]) end
  local stands = live and leases[i] == instance and fences[i] == epoch and committed <= fence
  if not stands then
    reply[at], reply[at + 1] = 2, math.max(fence, committed)
  else
    local old, number = redis.call('HMGET', key, 'epoch', 'number'), ARGV[6 + 2 * n + i]
    -- An attempt that comes late, after a report that followed, changes nothing.
    if old[1] ~= epoch or tonumber(old[2]) < tonumber(number) then
      stored[#stored + 1] = { key, epoch, number, ARGV[6 + 3 * n + i] }
    end
    reply[at], reply[at + 1] = 1, 0
  end
end

local ms = decimal((unix_time()))
for s = 1, #stored do
  local key, epoch, number, document = unpack(stored[s])
  redis.call('HSET', key, 'epoch', epoch, 'number', number, 'instance', instance,
    'document', document, 'unix_ms', ms)
end
return reply
