-- Grants those of up to 500 duties that are free.
--
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  the nonce           ARGV[6]  the reason
-- ARGV[7]  the largest epoch that the caller has ever seen
-- ARGV[8...]  n duty ids, escaped, then their n floors
-- reply    -1 when the session has ended; else the session's mark, then for each duty three
--          values: 1, epoch, 0 (granted); 2, epoch, 0 (held already); 3, holder, its ms left (held)
--
-- A lease is valid while its key exists, whoever wrote it: foreign instances know nothing else. It
-- ends with its session, because its TTL is never longer than the session's. Members of an older
-- version look only at a lease's escaped name. While such a member lives, a lease whose two names
-- differ is written under both. The first one written only under its plain name locks older
-- versions out, including processes that have the store open.

local instance, nonce, reason = ARGV[3], ARGV[5], ARGV[6]
local session = root .. 'session:' .. ARGV[4]
local stored = redis.call('HMGET', session, 'nonce', 'evicted', 'ttl', 'mark')
if stored[1] ~= nonce or stored[2] == '1' then return -1 end
local ttl = tonumber(stored[3])
local left = redis.call('PTTL', session)
if left < 1 or left > ttl then left = ttl end

local last = last_entry()
if not last then return damaged(root .. 'audit') end
local ms, now = unix_time()
local marker = redis.call('HMGET', KEYS[1], 'base', 'run_id', 'breaking')
local base = count(marker[1])
if not base then return damaged(KEYS[1]) end
-- A restart may have lost the last grants: no epoch at or below theirs is granted again. Without
-- permission to read the run id, every claim counts as the first after a restart.
local info = redis.pcall('INFO', 'server')
local run_id = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
local restarted = not run_id or run_id ~= marker[2]
if restarted then base = math.max(base, now, tonumber(ARGV[7])) end

-- The newest epoch of forgotten duties; the floor of the whole store is the base.
local floor = count(redis.call('GET', root .. 'floor'))
if not floor then return damaged(root .. 'floor') end

local n = (#ARGV - 7) / 2
local grants = grants_of(8, n)
local leases, lease_keys = leases_of(8, n, grants, nonce)
local fences, fence_keys = mget('fence', 8, n)
local reply, granted, caps, ttls = { 0 }, {}, {}, {}
local two_names, older = false, false
for i = 1, n do
  local holder, fence, grant = leases[i], count(fences[i]), grant_of(grants[i])
  if not fence then return damaged(fence_keys[i]) end
  local mine = holder == instance and grant.held and grant.nonce == nonce
  local at = 3 * i - 1
  if mine and fence > 0 then
    reply[at], reply[at + 1], reply[at + 2] = 2, fence, 0
  elseif holder and not mine then
    local ends = redis.call('PTTL', lease_keys[i])
    -- After the clock was set back, a lease would outlast the TTL of its session.
    if ttls[holder] == nil then
      local theirs = redis.pcall('HGET', root .. 'session:' .. escape(holder), 'ttl')
      ttls[holder] = type(theirs) == 'string' and tonumber(theirs) or false
    end
    local most = ttls[holder]
    if most and (ends > most or ends < 0) then
      ends = most
      caps[#caps + 1] = { lease_keys[i], decimal(most) }
    end
    reply[at], reply[at + 1], reply[at + 2] = 3, holder, ends
  else
    local key = root .. 'checkpoint:' .. ARGV[7 + i]
    local committed = count(redis.call('HGET', key, 'epoch'))
    if not committed then return damaged(key) end
    local epoch = math.max(fence, base, floor, tonumber(ARGV[7 + n + i]), committed) + 1
    if epoch > LARGEST then
      return redis.error_reply('EXHAUSTED no epoch is left for ' .. ARGV[7 + i])
    end
    granted[#granted + 1] = { i, epoch, grant, fences[i] or '' }
    two_names = two_names or lease_keys[i] ~= root .. 'lease:' .. ARGV[7 + i]
    reply[at], reply[at + 1], reply[at + 2] = 1, epoch, 0
  end
end

if two_names and (count(marker[3]) or 0) < 3 then
  older = older_member()
  if not older then
    redis.call('HSET', KEYS[1], 'schema', '3', 'breaking', '3', 'incarnation', ARGV[1] .. NEWER)
  end
end
if restarted then
  redis.call('HSET', KEYS[1], 'base', decimal(base), 'run_id', run_id or marker[2])
end
local text = grant_text(nonce, 'held', instance)
for g = 1, #granted do
  local i, epoch, grant, before = unpack(granted[g])
  local id = ARGV[7 + i]
  redis.call('SET', lease_keys[i], instance, 'PX', decimal(left))
  if older then
    redis.call('SET', root .. 'lease:' .. id, instance, 'NX', 'PX', decimal(left))
  end
  redis.call('SET', fence_keys[i], decimal(epoch))
  -- Left by an older version that forgot the duty.
  if before == '' then redis.call('DEL', root .. 'report:' .. id) end
  redis.call('HSET', root .. 'grants', id, text)
  if grant.held then
    last = record(last, 'expired', grant.instance, id, before, reason, ms)
  end
  last = record(last, 'granted', instance, id, decimal(epoch), reason, ms)
end
for c = 1, #caps do redis.call('PEXPIRE', caps[c][1], caps[c][2]) end
reply[1] = tonumber(stored[4] or '0') + #granted
if #granted > 0 then
  redis.call('HSET', session, 'mark', decimal(reply[1]))
  hint()
end
return reply
