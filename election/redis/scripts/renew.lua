-- ARGV: digest. Returns {outcome, number, owner, ms left}.
local h, bad = holder()
if bad then return { 'corrupt' } end
if not h or h.digest ~= ARGV[1] then return { 'lost' } end
redis.call('PEXPIRE', lease, h.ttl)
return { 'renewed', h.number, h.owner, tonumber(h.ttl) }
