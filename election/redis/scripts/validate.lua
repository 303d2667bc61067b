-- KEYS: lease. Returns its time to live and its text, at one moment.
-- Nothing is asked as often: this script does without the prelude, whose functions are
-- made anew at each call.
return { redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]) }
