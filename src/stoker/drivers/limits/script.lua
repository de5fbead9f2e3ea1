-- Limits over several machines, a batch of reservations and settlements at a time, each of them whole or not at all.
-- KEYS[1]: the prefix. ARGV[1]: msgpack of {worker, machine, lease, now, operations}; now is 0 outside of tests, for
-- the clock of the store is the one that all machines agree on.
-- An operation is {kind, scopes, reserved, used, request}; kind is 0 to reserve, 1 to settle, 2 to say what is held.
-- A scope is {name, requests a minute, tokens a minute, tokens a day, concurrent} and, where its worker comes back after
-- a silence, what that knows by itself: {…, spent by its machine today, level of requests, level of tokens, held}.
-- The arithmetic is the one of decide/quota/level.py; a test runs both beside each other.
local ask = cmsgpack.unpack(ARGV[1])
local prefix, worker, machine, lease, now = KEYS[1], ask[1], ask[2], ask[3], ask[4]
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local FULL, KEEP = 1e300, 172800
local day = math.floor(now / 86400)
local workers = prefix .. ':workers'

local function alive(name)
  local ends = redis.call('ZSCORE', workers, name)
  return ends and tonumber(ends) >= now
end

local known = alive(worker)
redis.call('ZADD', workers, now + lease, worker)
redis.call('ZREMRANGEBYSCORE', workers, '-inf', now - KEEP)
redis.call('EXPIRE', workers, KEEP)

local function keys(scope)
  local name = scope[1]
  return {
    level = prefix .. ':level:' .. name,
    spent = prefix .. ':spent:' .. day .. ':' .. name,
    running = prefix .. ':running:' .. name,
  }
end

local function count(key, more)
  local held = tonumber(redis.call('HGET', key, worker) or 0) + more
  if held > 0 then redis.call('HSET', key, worker, held) else redis.call('HDEL', key, worker) end
  redis.call('EXPIRE', key, KEEP)
end

local function spend(key, more)
  if more ~= 0 then
    local spent = tonumber(redis.call('HGET', key, machine) or 0) + more
    redis.call('HSET', key, machine, math.max(0, spent))
    redis.call('EXPIRE', key, KEEP)
  end
end

local function read(scope, key)
  local found = redis.call('HMGET', key.level, 'requests', 'tokens', 'at')
  local requests, tokens, at = tonumber(found[1] or FULL), tonumber(found[2] or FULL), tonumber(found[3] or now)
  local minutes = math.max(0, now - at) / 60
  if scope[2] > 0 then requests = math.min(scope[2], requests + minutes * scope[2]) else requests = FULL end
  if scope[3] > 0 then tokens = math.min(scope[3], tokens + minutes * scope[3]) else tokens = FULL end
  return requests, tokens
end

local function write(key, requests, tokens)
  redis.call('HSET', key.level, 'requests', requests, 'tokens', tokens, 'at', now)
  redis.call('EXPIRE', key.level, KEEP)
end

-- What somebody who comes back knows: no count may be lower, no level higher.
local function remind(scope, key)
  if #scope > 5 then
    local spent = tonumber(redis.call('HGET', key.spent, machine) or 0)
    if scope[6] > spent then spend(key.spent, scope[6] - spent) end
    redis.call('HSET', key.running, worker, scope[9])
    count(key.running, 0)
    local requests, tokens = read(scope, key)
    write(key, math.min(requests, scope[7]), math.min(tokens, scope[8]))
  end
end

local function spent_by_all(scope, key)
  local sum = 0
  if scope[4] > 0 then
    for _, tokens in ipairs(redis.call('HVALS', key.spent)) do sum = sum + tonumber(tokens) end
  end
  return sum
end

local function running_anywhere(scope, key)
  local sum = 0
  if scope[5] > 0 then
    local all = redis.call('HGETALL', key.running)
    for i = 1, #all, 2 do
      if alive(all[i]) then sum = sum + tonumber(all[i + 1]) else redis.call('HDEL', key.running, all[i]) end
    end
  end
  return sum
end

local function allows(scope, seen, tokens)
  if scope[5] > 0 and seen[4] >= scope[5] then return false end
  if scope[2] > 0 and seen[1] < 1 then return false end
  if scope[3] > 0 and seen[2] < math.max(1, math.min(tokens, scope[3])) then return false end
  return not (scope[4] > 0 and seen[3] + math.max(1, math.min(tokens, scope[4])) > scope[4])
end

local function reserve(scopes, tokens)
  local all, granted = {}, true
  for i, scope in ipairs(scopes) do
    local key = keys(scope)
    remind(scope, key)
    local requests, level = read(scope, key)
    all[i] = {requests, level, spent_by_all(scope, key), running_anywhere(scope, key)}
    granted = allows(scope, all[i], tokens) and granted
  end
  if granted then
    for i, scope in ipairs(scopes) do
      local key, seen = keys(scope), all[i]
      seen[1], seen[2], seen[3] = seen[1] - 1, seen[2] - tokens, seen[3] + tokens
      write(key, seen[1], seen[2])
      spend(key.spent, tokens)
      count(key.running, 1)
    end
  end
  return {granted and 1 or 0, all}
end

local function settle(scopes, reserved, used, request)
  for _, scope in ipairs(scopes) do
    local key = keys(scope)
    remind(scope, key)
    local requests, tokens = read(scope, key)
    write(key, requests + (1 - request), tokens - (used - reserved))
    spend(key.spent, used - reserved)
    count(key.running, -1)
  end
end

local answers = {}
for i, operation in ipairs(ask[5]) do
  if operation[1] == 0 then
    answers[i] = reserve(operation[2], operation[3])
  elseif operation[1] == 1 then
    settle(operation[2], operation[3], operation[4], operation[5])
    answers[i] = 0
  else
    for _, scope in ipairs(operation[2]) do remind(scope, keys(scope)) end
    answers[i] = 0
  end
end
return cmsgpack.pack({known and 1 or 0, now, answers})
