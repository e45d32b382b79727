-- Extends a session by its TTL, and tells which of up to 500 holds still stand.
--
-- KEYS[1]  the marker          ARGV[1], ARGV[2]  incarnation, root
-- KEYS[2...]  n leases, then their n fences: built by the caller, which is cheaper than here
-- ARGV[3]  the instance        ARGV[4]  the same, escaped
-- ARGV[5]  the nonce           ARGV[6]  the TTL in ms
-- ARGV[7]  how long, in ms, ended sessions are remembered
-- ARGV[8]  1 when ARGV[9] is the new note, 0 when the note stays
-- ARGV[10...]  the n epochs
-- reply    -1 when the session has ended; else the places (from 1) of the holds that are lost

local refusal = refused()
if refusal then return refusal end
local instance, escaped, ttl = ARGV[3], ARGV[4], ARGV[6]
local session, node = root .. 'session:' .. escaped, root .. 'node:' .. escaped
local stored = redis.call('HMGET', session, 'nonce', 'evicted', 'ttl')
if stored[1] ~= ARGV[5] or stored[2] == '1' then return -1 end

local n = (#KEYS - 1) / 2
local found = n > 0 and redis.call('MGET', unpack(KEYS, 2)) or {}
local call, lost = redis.call, {}
-- Only PEXPIRE extends: a SET that forgot the TTL would leave a lease for ever (B14). It also
-- needs no memory, so a full store keeps its members.
call('PEXPIRE', session, ttl)
if call('PEXPIRE', node, ttl) == 0 then call('SET', node, '1', 'PX', ttl) end
call('PEXPIRE', root .. 'spent:' .. ARGV[5], ARGV[7])
for i = 1, n do
  if found[i] == instance and found[n + i] == ARGV[9 + i] then
    call('PEXPIRE', KEYS[1 + i], ttl)
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
