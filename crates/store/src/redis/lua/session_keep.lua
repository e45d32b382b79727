-- Extends a session by its TTL, and tells which of up to 500 holds still stand.
--
-- KEYS[1]  the marker          ARGV[1], ARGV[2]  incarnation, root
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  the nonce           ARGV[6]  the TTL in ms
-- ARGV[7]  how long, in ms, ended sessions are remembered
-- ARGV[8]  1 when ARGV[9] is the new note, 0 when the note stays
-- ARGV[10...]  n duty ids, escaped, then their n epochs
-- reply    -1 when the session has ended; else the places (from 1) of the holds that are lost

local refusal = refused()
if refusal then return refusal end
local instance, escaped, ttl = ARGV[3], ARGV[4], ARGV[6]
local session, node = root .. 'session:' .. escaped, root .. 'node:' .. escaped
local stored = redis.call('HMGET', session, 'nonce', 'evicted', 'ttl')
if stored[1] ~= ARGV[5] or stored[2] == '1' then return -1 end

local n = (#ARGV - 9) / 2
local leases, keys = mget('lease', 10, n)
local fences = mget('fence', 10, n)
local call, lost = redis.call, {}
-- Only PEXPIRE extends: a SET that forgot the TTL would leave a lease for ever (B14). It also
-- needs no memory, so a full store keeps its members.
call('PEXPIRE', session, ttl)
if call('PEXPIRE', node, ttl) == 0 then call('SET', node, '1', 'PX', ttl) end
call('PEXPIRE', root .. 'spent:' .. ARGV[5], ARGV[7])
for i = 1, n do
  if leases[i] == instance and fences[i] == ARGV[9 + n + i] then
    call('PEXPIRE', keys[i], ttl)
  else
    lost[#lost + 1] = i
  end
end
if stored[3] ~= ttl then call('HSET', session, 'ttl', ttl) end
if ARGV[8] == '1' then
  call('HSET', session, 'note', ARGV[9])
  hint()
end
return lost
