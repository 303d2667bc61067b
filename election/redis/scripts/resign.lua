-- ARGV: digest, hold-off in ms. Returns {outcome}.
local h, bad = holder()
if bad then return { 'corrupt' } end
if not h or h.digest ~= ARGV[1] then return { 'not-owner' } end
redis.call('DEL', lease)
if ARGV[2] ~= '0' then redis.call('SET', holdoff, '1', 'PX', ARGV[2]) end
return { 'released' }
