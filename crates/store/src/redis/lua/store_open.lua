-- Finds or creates the store's marker.
--
-- KEYS[1]  the marker
-- ARGV[1]  the incarnation to give a new store
-- ARGV[2]  (unused: the root)
-- ARGV[3]  the newest schema that the caller knows
-- ARGV[4]  the largest epoch that the caller has ever seen
-- ARGV[5]  the server's run id; '' if unavailable
-- reply    {the incarnation, the history slots}
--
-- `breaking` is the oldest schema that a program must support to open the store.
-- Epochs start above `base`. In a new store that is the server's clock in microseconds: above every
-- epoch that a lost store granted, even if none is remembered, because no duty is granted as often
-- as once per microsecond (more than once per millisecond is possible). A restart may have lost the
-- last second, so it raises the base in the same way.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
  return redis.error_reply('DAMAGED the marker ' .. KEYS[1] .. ' is a ' .. kind)
end
local marker = kind == 'hash'
  and redis.call('HMGET', KEYS[1], 'incarnation', 'base', 'run_id', 'breaking', 'history_slots')
  or {}
local base, breaking = count(marker[2]), count(marker[4])
if kind == 'hash' and not (marker[1] and marker[2] and base and breaking) then
  return redis.error_reply('DAMAGED the marker ' .. KEYS[1] .. ' lacks required fields')
end
if breaking > tonumber(ARGV[3]) then
  return redis.error_reply('NEWER the store needs schema ' .. decimal(breaking))
end
local seen, run_id = tonumber(ARGV[4]), ARGV[5]
local _, now = unix_time()
if kind == 'none' then
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[1],
    'base', decimal(math.max(now, seen)), 'run_id', run_id,
    'schema', ARGV[3], 'breaking', '0')
  return { ARGV[1], HISTORY_SLOTS }
end
local raised = math.max(base, seen)
if run_id == '' or run_id ~= marker[3] then raised = math.max(raised, now) end
if raised ~= base or run_id ~= marker[3] then
  redis.call('HSET', KEYS[1], 'base', decimal(raised), 'run_id', run_id)
end
local incarnation = string.gsub(marker[1], '%' .. NEWER .. '$', '')
return { incarnation, tonumber(marker[5] or HISTORY_SLOTS) }
