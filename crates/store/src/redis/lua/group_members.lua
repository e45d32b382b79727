-- Lists the members of a group.
--
-- ARGV[3...]  names from node keys that may be foreign instances, without a session here
-- reply    for each member five values:
--          instance, escaped; nonce or ''; note; ms left; 1 when evicted or 0

local reply = {}
local function add(...)
  for _, value in ipairs({ ... }) do reply[#reply + 1] = value end
end

local ours, ids = {}, redis.call('SMEMBERS', root .. 'members')
for _, id in ipairs(ids) do
  local key, node = root .. 'session:' .. id, root .. 'node:' .. plain(id)
  local session = redis.call('HMGET', key, 'nonce', 'note', 'ttl', 'evicted')
  if session[1] then
    local left, ttl = redis.call('PTTL', key), tonumber(session[3])
    -- After the clock was set back, dead members would stay for hours; live ones renew at once.
    if left > ttl or left < 0 then
      left = ttl
      redis.pcall('PEXPIRE', key, session[3])
      redis.pcall('PEXPIRE', node, session[3])
    end
    ours[id] = true
    add(id, session[1], session[2], left, session[4] == '1' and 1 or 0)
  else
    -- Only an index: while the store refuses writes, this script still answers.
    redis.pcall('SREM', root .. 'members', id)
  end
end
for i = 3, #ARGV do
  local left, id = redis.call('PTTL', root .. 'node:' .. ARGV[i]), escape(ARGV[i])
  -- Older versions escape the name in this key, too.
  if not (ours[id] or ours[ARGV[i]]) and left ~= -2 then add(id, '', '', left, 0) end
end
return reply
