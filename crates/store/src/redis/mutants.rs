//! Parts of scripts that mutants replace.

tenure_core::swaps! { SWAPS
    R2Same "lua/hold_claim.lua"
        "ARGV[7 + n + i]), committed) + 1" => "ARGV[7 + n + i]), committed, 1)";
    R2Forget "lua/hold_release.lua"
        "    end_lease(id, instance)" =>
        "    end_lease(id, instance) redis.call('DEL', root .. 'fence:' .. id)";
    R3Name "lua/session_keep_alive.lua" "if stored[1] ~= ARGV[5] or" => "if not stored[1] or";
    R8Whole "lua/session_keep_alive.lua"
        "leases[i] == instance and (confirmed or fences[i] == ARGV[10 + n + i])" =>
        "leases[1] == instance and (confirmed or fences[1] == ARGV[11 + n])";
    R9Revive "lua/session_keep_alive.lua"
        "if stored[1] ~= ARGV[5] or" => "if (stored[1] and stored[1] ~= ARGV[5]) or";
    R9Release "lua/hold_release.lua" "if fences[i] ~= epoch or" => "if";
    R9Report "lua/report_store.lua" "if not stands then" => "if false then";
    R14Version "lua/checkpoint_commit.lua"
        "elseif version ~= tonumber(ARGV[6 + 2 * n + i]) then" => "elseif false then";
    R14Fence "lua/checkpoint_commit.lua" "if not stands then" => "if false then";
    R22Evict "lua/session_keep_alive.lua" " or stored[2] == '1'" => "";
    R24Audit "lua/common.lua"
        "local function record(last, kind, instance, duty, epoch, reason, ms)" =>
        "local function record(last, kind, instance, duty, epoch, reason, ms) do return last end";
}
