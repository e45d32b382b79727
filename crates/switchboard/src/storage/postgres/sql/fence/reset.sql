SELECT channel, provider, endpoint, duty, epoch, instance, updated_at,
    ended FROM tenure.fence_reset($1, $2, $3, $4, $5, $6, $7)
