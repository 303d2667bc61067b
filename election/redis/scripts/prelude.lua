-- KEYS: lease ("digest number ttl owner"; expires with the lease),
--       number (the last number granted; never expires),
--       holdoff (exists during a hold-off).
-- Fencing numbers are decimal strings throughout: a Lua number is a double and
-- rounds above 2^53.
local lease, number, holdoff = KEYS[1], KEYS[2], KEYS[3]

-- left is the time to live of a key in milliseconds; 0 when it is gone or about to
-- be, and nil when it has none, which none of our keys that expire may have.
local function left(key)
  local ms = redis.call('PTTL', key)
  if ms == -1 then return nil end
  if ms < 0 then return 0 end
  return ms
end

-- holder returns the live holder or nil, and whether the lease is corrupt.
local function holder()
  local ms = left(lease)
  if ms == 0 then return nil, false end
  local digest, n, ttl, owner = string.match(redis.call('GET', lease), '^(%x+) (%d+) (%d+) (%S+)$')
  if not (ms and digest and #digest == 64) then return nil, true end
  return { owner = owner, digest = digest, number = n, ttl = ttl, left = ms }, false
end

-- hold writes the lease, from now on.
local function hold(digest, n, ttl, owner)
  redis.call('SET', lease, digest .. ' ' .. n .. ' ' .. ttl .. ' ' .. owner, 'PX', ttl)
end
