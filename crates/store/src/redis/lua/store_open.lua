-- Finds or makes the store's marker.
--
-- KEYS[1]  the marker
-- ARGV[1]  the incarnation to give a new store
-- ARGV[2]  (unused: the root)
-- ARGV[3]  the newest schema that the caller knows
-- ARGV[4]  the largest epoch that the caller has ever seen
-- ARGV[5]  the server's run id; '' when the server does not tell it
-- reply    {the incarnation, the history slots}
--
-- `breaking` names the newest schema that older programs cannot work with.
-- Epochs start above `base`. A new store starts at the server's microseconds, so above every epoch
-- that was granted before the old one was lost, even if nobody remembers them: no duty is granted
-- once in a microsecond (it can be more than once in a millisecond). A restart may have lost the
-- last second, and then the base rises in the same way.

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
