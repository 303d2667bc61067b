-- ARGV: digest, hold-off in ms, channel. Returns {outcome}.
local h, bad = holder()
if bad then return { 'corrupt' } end
if not h or h.digest ~= ARGV[1] then return { 'not-owner' } end
redis.call('DEL', lease)
if ARGV[2] ~= '0' then redis.call('SET', holdoff, '1', 'PX', ARGV[2]) end
-- A hint, no more. INVARIANT: it is released all the same where the user may not publish,
-- or the server does not know how: pcall returns the error, and nobody looks at it.
redis.pcall('PUBLISH', ARGV[3], 'released')
return { 'released' }
