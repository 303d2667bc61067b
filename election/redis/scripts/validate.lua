-- ARGV: digest. Returns {outcome, number, owner, ms left}.
local h, bad = holder()
if bad then return { 'corrupt' } end
if not h then return { 'vacant' } end
if h.digest == ARGV[1] then return { 'current', h.number, h.owner, h.left } end
return { 'stale', h.number, h.owner, h.left }
