-- Stores up to 500 checkpoints under holds of one session.
--
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  the nonce
-- ARGV[6]  n, then n duty ids, escaped, their n epochs (0 never matches), n expected versions and
--          n documents
-- reply    for each two values:
--          1, the new version (saved); 2, the newest epoch (fenced);
--          3, the stored version (conflict)

local instance, nonce, n = ARGV[3], ARGV[5], tonumber(ARGV[6])
local live = redis.call('HGET', root .. 'session:' .. ARGV[4], 'nonce') == nonce
local leases = mget('lease', 7, n)
local fences, fence_keys = mget('fence', 7, n)
local reply, saved = {}, {}
for i = 1, n do
  local id, epoch, at = ARGV[6 + i], ARGV[6 + n + i], 2 * i - 1
  local key = root .. 'checkpoint:' .. id
  local stored = redis.call('HMGET', key, 'version', 'epoch')
  local version, committed, fence = count(stored[1]), count(stored[2]), count(fences[i])
  if not version or not committed then return damaged(key) end
  if not fence then return damaged(fence_keys[i]) end
  local stands = live and leases[i] == instance and fences[i] == epoch and committed <= fence
  if not stands then
    reply[at], reply[at + 1] = 2, math.max(fence, committed)
  elseif version ~= tonumber(ARGV[6 + 2 * n + i]) then
    reply[at], reply[at + 1] = 3, version
  elseif version == LARGEST then
    return redis.error_reply('EXHAUSTED no version is left for ' .. key)
  else
    redis.call('LLEN', root .. 'history:' .. id)
    saved[#saved + 1] = { id, epoch, decimal(version + 1), ARGV[6 + 3 * n + i] }
    reply[at], reply[at + 1] = 1, version + 1
  end
end

local ms = decimal((unix_time()))
for s = 1, #saved do
  local id, epoch, version, document = unpack(saved[s])
  local history = root .. 'history:' .. id
  redis.call('HSET', root .. 'checkpoint:' .. id, 'version', version, 'epoch', epoch,
    'instance', instance, 'document', document, 'unix_ms', ms)
  -- One line of numbers, then the instance and the document verbatim.
  local head = version .. ' ' .. epoch .. ' ' .. ms .. ' ' .. #instance .. '\n'
  redis.call('LPUSH', history, head .. instance .. document)
  redis.call('LTRIM', history, 0, HISTORY_SLOTS - 1)
end
return reply
