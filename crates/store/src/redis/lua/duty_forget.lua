-- Forgets up to 500 duties of a group, except those that are held.
--
-- ARGV[3]  the reason          ARGV[4]  the schema that introduced floors
-- ARGV[5...]  duty ids, escaped
-- reply    for each duty three values: 1, the floor, 0 (forgotten); 2, holder, its ms left (held);
--          3, 0, 0 (unknown duty)
--
-- The epochs are merged into the group's floor before they are deleted: no grant is at or below it
-- (R2). From then on, programs that do not support floors must not open this store.

local reason, n = ARGV[3], #ARGV - 4
local floor_key = root .. 'floor'
local marker = redis.call('HMGET', KEYS[1], 'base', 'breaking')
local base, breaking = count(marker[1]), count(marker[2])
if not base or not breaking then return damaged(KEYS[1]) end
local floor = count(redis.call('GET', floor_key))
if not floor then return damaged(floor_key) end
local last = last_entry()
if not last then return damaged(root .. 'audit') end

local grants = grants_of(5, n)
local leases, lease_keys = leases_of(5, n, grants)
local fences, fence_keys = mget('fence', 5, n)
local reply, gone, before = {}, {}, floor
for i = 1, n do
  local id, at = ARGV[4 + i], 3 * i - 2
  local checkpoint, history = root .. 'checkpoint:' .. id, root .. 'history:' .. id
  if leases[i] then
    reply[at], reply[at + 1], reply[at + 2] = 2, leases[i], redis.call('PTTL', lease_keys[i])
  else
    local stored = redis.call('HMGET', checkpoint, 'epoch', 'instance')
    local report = redis.call('HMGET', root .. 'report:' .. id, 'epoch', 'instance')
    local fence, committed = count(fences[i]), count(stored[1])
    local reported = count(report[1])
    if not fence then return damaged(fence_keys[i]) end
    if not committed then return damaged(checkpoint) end
    if not reported then return damaged(root .. 'report:' .. id) end
    -- The newest entry of the history, as checkpoint_commit packs it.
    local entry = redis.call('LINDEX', history, 0) or ''
    local kept, length, text = string.match(entry, '^%d+ (%d+) %d+ (%d+)\n(.*)$')
    local author = text and string.sub(text, 1, tonumber(length))
    if fences[i] or grants[i] or stored[1] or kept or report[1] then
      local epoch = math.max(fence, committed, count(kept) or 0, reported)
      local holder = grant_of(grants[i]).instance or stored[2] or author or report[2] or 'unknown'
      gone[#gone + 1] = { id, epoch, holder, fence_keys[i], checkpoint, history }
      floor = math.max(floor, epoch)
      reply[at], reply[at + 1], reply[at + 2] = 1, 0, 0
    else
      reply[at], reply[at + 1], reply[at + 2] = 3, 0, 0
    end
  end
end
if #gone == 0 then return reply end

if floor > before then redis.call('SET', floor_key, decimal(floor)) end
if breaking < tonumber(ARGV[4]) then
  redis.call('HSET', KEYS[1], 'schema', ARGV[4], 'breaking', ARGV[4])
end
local ms = unix_time()
for g = 1, #gone do
  local id, epoch, holder, fence, checkpoint, history = unpack(gone[g])
  redis.call('DEL', fence, checkpoint, history, root .. 'report:' .. id)
  redis.call('HDEL', root .. 'grants', id)
  last = record(last, 'forgotten', holder, id, decimal(epoch), reason, ms)
end
for i = 1, n do
  if reply[3 * i - 2] == 1 then reply[3 * i - 1] = math.max(floor, base) end
end
hint()
return reply
