-- Returns {outcome, number, owner, ms left of the lease or the hold-off}.
local h, bad = holder()
if bad then return { 'corrupt' } end
if h then return { 'held', h.number, h.owner, h.left } end
local off = left(holdoff)
if not off then return { 'corrupt' } end
return { 'vacant', redis.call('GET', number) or '0', '', off }
