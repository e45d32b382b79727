-- Adopts the store: sets a new incarnation, ends all sessions and holds, and raises the base to at
-- least every epoch that can be found.
--
-- KEYS[1]  the marker          ARGV[1]  incarnation
-- KEYS[2]  the set of groups   ARGV[2]  the prefix of all keys
-- ARGV[3]  the new incarnation
-- ARGV[4]  the newest epoch that the caller knows or has found
-- ARGV[5]  n, then n groups, escaped, that the set may lack
-- ARGV[6 + n...]  parts of keys, alternating `<group>:` and the escaped instance: sessions that
--          the index of members may lack
-- reply    {how many sessions ended, the base}
--
-- All in one step, because a handle continues with the new incarnation as soon as it learns of it:
-- by then nothing old may be left. Foreign instances, which only share the keys, have no session
-- here and keep their leases.

local prefix, n = ARGV[2], tonumber(ARGV[5])
local base = count(redis.call('HGET', KEYS[1], 'base'))
if not base then return damaged(KEYS[1]) end
local _, now = unix_time()
base = math.max(base, now, tonumber(ARGV[4]))

local groups, known = redis.call('SMEMBERS', KEYS[2]), {}
for i = 1, #groups do known[groups[i]] = true end
for i = 6, 5 + n do
  if not known[ARGV[i]] then groups[#groups + 1] = ARGV[i] end
  known[ARGV[i]] = true
end

local doomed, seen, sessions = {}, {}, 0
-- Only hashes with the fields of a session: the key may belong to another program.
local function end_session(head, id)
  local key = head .. 'session:' .. id
  local stored = redis.pcall('HMGET', key, 'nonce', 'ttl', 'evicted')
  if seen[key] or stored.err or not (stored[1] and stored[2] and stored[3]) then return end
  seen[key], sessions = true, sessions + 1
  doomed[#doomed + 1] = key
  doomed[#doomed + 1] = head .. 'node:' .. id
  doomed[#doomed + 1] = head .. 'node:' .. plain(id, head)
end

for g = 1, #groups do
  local head = prefix .. groups[g] .. ':'
  local members = redis.pcall('SMEMBERS', head .. 'members')
  for i = 1, members.err and 0 or #members do end_session(head, members[i]) end
  local floor = redis.pcall('GET', head .. 'floor')
  if type(floor) == 'string' then base = math.max(base, count(floor) or 0) end
  local grants = redis.pcall('HGETALL', head .. 'grants')
  for from = 1, grants.err and 0 or #grants, 1000 do
    local keys, to = {}, math.min(from + 999, #grants)
    for i = from, to, 2 do
      keys[#keys + 1] = head .. 'lease:' .. plain(grants[i], head)
      keys[#keys + 1] = head .. 'lease:' .. grants[i]
      keys[#keys + 1] = head .. 'fence:' .. grants[i]
    end
    local found, at = redis.call('MGET', unpack(keys)), 1
    for i = from, to, 2 do
      local grant = grant_of(grants[i + 1])
      for name = at, at + 1 do
        if found[name] and grant.held and found[name] == grant.instance then
          doomed[#doomed + 1] = keys[name]
        end
      end
      base = math.max(base, count(found[at + 2]) or 0)
      at = at + 3
    end
  end
end
for i = 6 + n, #ARGV, 2 do end_session(prefix .. ARGV[i], ARGV[i + 1]) end
if base >= LARGEST then return redis.error_reply('EXHAUSTED no epoch is left above the floor') end

redis.call('HSET', KEYS[1], 'incarnation', ARGV[3], 'base', decimal(base))
for i = 1, #doomed do redis.call('DEL', doomed[i]) end
for g = 1, #groups do redis.pcall('PUBLISH', prefix .. groups[g] .. ':changes', '') end
return { sessions, base }
