-- ARGV: digest, owner, ttl in ms, floor.
-- Returns {outcome, number, owner, ms left}.
local digest, owner, ttl, floor = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local largest = '9223372036854775807'

local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local h, bad = holder()
if bad then return { 'corrupt' } end
if h then
  if h.digest ~= digest then return { 'busy', h.number, h.owner, h.left } end
  -- Its own grant, asked for again. It is not shortened: this may be an earlier request
  -- that arrives late, and a later one was told of a longer lease.
  if tonumber(h.ttl) > tonumber(ttl) then ttl = h.ttl end
  hold(digest, h.number, ttl, h.owner)
  return { 'acquired', h.number, h.owner, tonumber(ttl) }
end

local off = left(holdoff)
if not off then return { 'corrupt' } end
if off > 0 then return { 'hold-off', '0', '', off } end

local last = redis.call('GET', number) or '0'
if not (string.match(last, '^[1-9]%d*$') or last == '0') or less(largest, last) then return { 'corrupt' } end
if last == largest then return { 'exhausted' } end

-- max(last + 1, floor, the server's clock in ms)
local t = redis.call('TIME')
local n = string.gsub(t[1] .. string.format('%03d', math.floor(tonumber(t[2]) / 1000)), '^0+(%d)', '%1')
if less(n, floor) then n = floor end
if less(last, n) then
  redis.call('SET', number, n)
else
  redis.call('INCR', number)
  n = redis.call('GET', number)
end
hold(digest, n, ttl, owner)
return { 'acquired', n, owner, tonumber(ttl) }
