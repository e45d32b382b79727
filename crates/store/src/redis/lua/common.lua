-- Code shared by all scripts, prepended to each after a line that sets AUDIT_KEPT and HISTORY_SLOTS
-- to their defaults. Keys and arguments that a script does not describe:
--
-- KEYS[1]  the store's marker: a hash of incarnation, base, run_id, schema, breaking, and of
--          history_slots and audit_kept if they were set
-- ARGV[1]  the incarnation that the caller knows
-- ARGV[2]  the root of the keys that the script works on: `<prefix><group>:`, or `<prefix>tenure:`
--
-- Every script reads and checks before it writes. After an error raised by a reading command, or an
-- error reply that begins with RESET, DAMAGED, EXHAUSTED or NEWER, nothing has changed.

-- The largest integer that Lua represents exactly; also the limit of epochs and versions.
local LARGEST = 9007199254740991
local root = ARGV[2]
local PREFIX = string.sub(KEYS[1], 1, -1 - #'tenure:store')
-- Root of the group whose keys foreign instances may share.
local SHARED = PREFIX .. 'poll:'

-- Appended to the marker's incarnation once older versions must stop. A process of such a version
-- that has the store open compares the whole field in every script, and so finds another store.
local NEWER = '+3'

-- Returns an error reply if the store is not the one that the caller opened, else nil.
local function refused()
  local marker = redis.pcall('HMGET', KEYS[1], 'incarnation', 'history_slots', 'audit_kept')
  if marker.err then
    return redis.error_reply('DAMAGED the marker ' .. KEYS[1] .. ' is not a hash')
  end
  if marker[1] ~= ARGV[1] and marker[1] ~= ARGV[1] .. NEWER then
    return redis.error_reply('RESET the store is not the one that was opened')
  end
  HISTORY_SLOTS = tonumber(marker[2] or HISTORY_SLOTS)
  AUDIT_KEPT = tonumber(marker[3] or AUDIT_KEPT)
end

local function decimal(number)
  return string.format('%.0f', number)
end

-- Parses a stored counter: 0 if absent, nil if invalid.
local function count(text)
  if not text then return 0 end
  if not string.find(text, '^%d+$') then return nil end
  local number = tonumber(text)
  return number <= LARGEST and number or nil
end

local function damaged(key)
  return redis.error_reply('DAMAGED ' .. key .. ' has unexpected content')
end

-- Returns the server's wall clock in milliseconds, and in microseconds.
local function unix_time()
  local time = redis.call('TIME')
  local seconds, micros = tonumber(time[1]), tonumber(time[2])
  return seconds * 1000 + math.floor(micros / 1000), seconds * 1000000 + micros
end

-- Escapes a name for use in a key, exactly as the core crate does.
local function escape(name)
  return (string.gsub(name, '[^A-Za-z0-9._:@-]', function(c)
    return string.format('%%%02X', string.byte(c))
  end))
end

-- Returns an escaped name as lease and node keys contain it: unescaped where foreign instances may
-- share these keys, else escaped. All other keys contain the escaped form in every group.
local function plain(name, head)
  if (head or root) ~= SHARED or not string.find(name, '%', 1, true) then return name end
  return (string.gsub(name, '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end))
end

-- MGET of `<root><kind>:<id>` for n ids that begin at ARGV[first]; a key of another type reads as
-- absent, where GET would stop the script. Also returns the keys.
local function mget(kind, first, n)
  if n == 0 then return {}, {} end
  local keys, head = {}, root .. kind .. ':'
  local name = kind == 'lease' and plain or function(id) return id end
  for i = 1, n do keys[i] = head .. name(ARGV[first + i - 1]) end
  return redis.call('MGET', unpack(keys)), keys
end

-- The grant of a duty is kept as `<nonce> <held|free> <instance>`; a nonce has 36 characters.
local function grant_of(text)
  if not text then return {} end
  return {
    nonce = string.sub(text, 1, 36),
    held = string.sub(text, 38, 41) == 'held',
    instance = string.sub(text, 43),
  }
end

local function grant_text(nonce, word, instance)
  return nonce .. ' ' .. word .. ' ' .. instance
end

-- HMGET of the grants of n ids that begin at ARGV[first].
local function grants_of(first, n)
  if n == 0 then return {} end
  return redis.call('HMGET', root .. 'grants', unpack(ARGV, first, first + n - 1))
end

-- Like mget('lease', first, n), but in a group with plain names also finds leases that an older
-- version wrote under the escaped name. That key may also be the lease of the id that is literally
-- spelled so, hence it counts only if its value is the instance that holds the duty's grant. A
-- session's own leases count under their plain names only; `nonce` is the caller's, if any.
local function leases_of(first, n, grants, nonce)
  local leases, keys = mget('lease', first, n)
  for i = 1, n do
    local key = root .. 'lease:' .. ARGV[first + i - 1]
    if not leases[i] and key ~= keys[i] then
      local grant, holder = grant_of(grants[i]), redis.call('MGET', key)[1]
      if holder and grant.held and grant.instance == holder and grant.nonce ~= nonce then
        leases[i], keys[i] = holder, key
      end
    end
  end
  return leases, keys
end

-- Returns whether any group has a member of a version that knows leases by escaped name only.
local function older_member()
  for _, group in ipairs(redis.call('SMEMBERS', PREFIX .. 'tenure:groups')) do
    local head = PREFIX .. group .. ':'
    local ids = redis.pcall('SMEMBERS', head .. 'members')
    for i = 1, ids.err and 0 or #ids do
      local session = redis.pcall('HMGET', head .. 'session:' .. ids[i], 'nonce', 'plain')
      if not session.err and session[1] and not session[2] then return true end
    end
  end
  return false
end

-- Deletes the lease that an instance has on a duty, under both names.
local function end_lease(id, instance)
  local key, old = root .. 'lease:' .. plain(id), root .. 'lease:' .. id
  redis.call('DEL', key)
  if key == old or redis.call('MGET', old)[1] ~= instance then return end
  -- Not if it is the lease of the id that is literally spelled so.
  if not grant_of(redis.call('HGET', root .. 'grants', escape(id))).held then
    redis.call('DEL', old)
  end
end

-- Returns the number of the group's last audit entry, or nil if the key is not a stream. The stream
-- keeps this number even when it is trimmed to nothing.
local function last_entry()
  local info = redis.pcall('XINFO', 'STREAM', root .. 'audit')
  if info.err then
    return string.find(info.err, 'no such key', 1, true) and 0 or nil
  end
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      return tonumber(string.match(info[i + 1], '^%d+'))
    end
  end
end

-- Adds an audit entry and returns its number; duty and epoch are '' for sessions.
local function record(last, kind, instance, duty, epoch, reason, ms)
  redis.call('XADD', root .. 'audit', 'MAXLEN', '~', AUDIT_KEPT, decimal(last + 1) .. '-0',
    'kind', kind, 'instance', instance, 'duty', duty, 'epoch', epoch, 'reason', reason,
    'unix_ms', decimal(ms))
  return last + 1
end

local function hint()
  -- A user without the right to publish loses hints, but no write is left half done.
  redis.pcall('PUBLISH', root .. 'changes', '')
end

-- Returns up to `most` duties with a valid lease granted under `nonce`, as {id, epoch}, and whether
-- there are more. Reads only. It scans all grants of the group, so it does not parse them.
local function holds_of(nonce, instance, most)
  local grants, ids = redis.call('HGETALL', root .. 'grants'), {}
  local ours = grant_text(nonce, 'held', instance)
  for i = 1, #grants, 2 do
    if grants[i + 1] == ours then ids[#ids + 1] = grants[i] end
  end
  local holds = {}
  for from = 1, #ids, 500 do
    local n = math.min(500, #ids - from + 1)
    local keys = {}
    for i = 1, n do
      local id = ids[from + i - 1]
      keys[i], keys[n + i] = root .. 'lease:' .. plain(id), root .. 'fence:' .. id
      keys[2 * n + i] = root .. 'lease:' .. id
    end
    local found = redis.call('MGET', unpack(keys))
    for i = 1, n do
      if found[i] == instance or found[2 * n + i] == instance then
        if #holds == most then return holds, true end
        holds[#holds + 1] = { ids[from + i - 1], found[n + i] or '' }
      end
    end
  end
  return holds, false
end

-- Ends holds that holds_of found; returns the number of the last audit entry.
local function free(holds, nonce, instance, kind, reason, last, ms)
  for i = 1, #holds do
    local id, epoch = holds[i][1], holds[i][2]
    end_lease(id, instance)
    redis.call('HSET', root .. 'grants', id, grant_text(nonce, 'free', instance))
    last = record(last, kind, instance, id, epoch, reason, ms)
  end
  return last
end
