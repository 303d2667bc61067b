-- KEYS: lease, number, holdoff. Returns what validate does, and then the same of the
-- hold-off, and the last number.
return { redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[3]), redis.call('GET', KEYS[2]) }
