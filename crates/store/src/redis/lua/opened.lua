-- Follows common.lua in every script except store_open.lua.
local refusal = refused()
if refusal then return refusal end
