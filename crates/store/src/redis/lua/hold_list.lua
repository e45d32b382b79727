-- Lists the current holders of up to 500 duties.
--
-- ARGV[3...]  duty ids, escaped
-- reply    for each duty three values: its epoch or -1, its holder or '', the holder's ms left
--
-- The epoch is -1 if the duty has none, or if its current holder was not granted it.

local n = #ARGV - 2
local grants = grants_of(3, n)
local leases, keys = leases_of(3, n, grants)
local fences = mget('fence', 3, n)
local reply = {}
for i = 1, n do
  local holder, grant, at = leases[i], grant_of(grants[i]), 3 * i - 2
  local foreign = holder and not (grant.held and grant.instance == holder)
  local epoch = count(fences[i])
  reply[at] = (epoch and epoch > 0 and not foreign) and epoch or -1
  reply[at + 1] = holder or ''
  reply[at + 2] = holder and redis.call('PTTL', keys[i]) or 0
end
return reply
