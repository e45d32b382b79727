-- Extends a session by its TTL, and reports which of up to 500 holds are lost.
--
-- KEYS[2...]  n lease keys, built by the caller because that is cheaper than here
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  the nonce           ARGV[6]  the TTL in ms
-- ARGV[7]  how long, in ms, ended sessions are remembered
-- ARGV[8]  1 when ARGV[9] is the new note, 0 when the note stays
-- ARGV[10]  the mark of all n holds, or empty to compare their epochs
-- ARGV[11...]  the n duty ids, escaped, then their n epochs; absent if ARGV[10] is not empty
-- reply    -1 when the session has ended, -2 when ARGV[10] does not match and nothing was done;
--          else the session's mark and the positions (from 1) of lost holds

local instance, escaped, ttl = ARGV[3], ARGV[4], ARGV[6]
local session, node = root .. 'session:' .. escaped, root .. 'node:' .. plain(escaped)
local stored = redis.call('HMGET', session, 'nonce', 'evicted', 'ttl', 'mark')
if stored[1] ~= ARGV[5] or stored[2] == '1' then return -1 end
-- The mark counts the grants of this session. While it is unchanged, a lease in the instance's name
-- can only be the confirmed one, so its epoch need not be compared.
local mark, n = stored[4] or '0', #KEYS - 1
local confirmed = mark == ARGV[10]
if ARGV[10] ~= '' and not confirmed then return -2 end

local leases = n > 0 and redis.call('MGET', unpack(KEYS, 2)) or {}
local fences = confirmed and {} or mget('fence', 11, n)
local call, reply = redis.call, { tonumber(mark) }
-- Only PEXPIRE extends: a SET without a TTL would leave a lease for ever. PEXPIRE also needs no
-- memory, so a full store keeps its members.
call('PEXPIRE', session, ttl)
if call('PEXPIRE', node, ttl) == 0 then call('SET', node, '1', 'PX', ttl) end
call('PEXPIRE', root .. 'spent:' .. ARGV[5], ARGV[7])
for i = 1, n do
  if leases[i] == instance and (confirmed or fences[i] == ARGV[10 + n + i]) then
    call('PEXPIRE', KEYS[1 + i], ttl)
    -- The escaped name, which a claim also writes for members of an older version.
    local id = root == SHARED and string.sub(KEYS[1 + i], #root + #'lease:' + 1)
    if id and string.find(id, '[^A-Za-z0-9._:@-]') then
      local old = root .. 'lease:' .. escape(id)
      if call('MGET', old)[1] == instance then call('PEXPIRE', old, ttl) end
    end
  else
    reply[#reply + 1] = i
  end
end
if stored[3] ~= ttl then call('HSET', session, 'ttl', ttl) end
if ARGV[8] == '1' then
  call('HSET', session, 'note', ARGV[9])
  hint()
end
return reply
