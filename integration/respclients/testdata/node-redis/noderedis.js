'use strict'

const { createClient, createClientPool, createCluster, defineScript, RESP_TYPES } = require('redis')
const s = require('./script')
const { show, attempt, ask, lost, again } = s

const scripts = {
  addTo: defineScript({
    SCRIPT: "return redis.call('INCRBY', KEYS[1], ARGV[1])",
    NUMBER_OF_KEYS: 1,
    parseCommand(parser, key, by) {
      parser.pushKey(key)
      parser.push(String(by))
    },
    transformReply: (n) => n
  })
}

const tls = s.ca ? { tls: true, ca: s.ca } : {}
const socket = { host: s.host, port: s.port, ...tls }

const options = (token, more) => ({
  socket,
  username: s.username(token),
  password: s.password,
  RESP: s.resp,
  scripts,
  ...more
})

// connected has the library's own defaults, but for what the place says.
async function connected(token, more) {
  const c = s.cluster ? cluster(token) : createClient(options(token, more))
  c.on('error', (e) => leaving.has(c) || s.isClosing(e) || events.push(s.failure(e))) // the library asks for a listener
  await c.connect()
  if (s.bind && token) await c.sendCommand(['FENCE', 'BIND', s.election, token])
  return c
}
const events = []

// leave closes a client. What it says of the connections that it was just making anew is no
// event of the test's.
const leaving = new Set()
async function leave(c) {
  leaving.add(c)
  await c.close()
}

const cluster = (token) => createCluster({ rootNodes: [{ socket }], defaults: { ...options(token), scripts: undefined, socket: tls }, RESP: s.resp, scripts })

async function commands(c, list) {
  for (const args of list) await show(args.join(' ').slice(0, 60), () => c.sendCommand(args))
}

async function reads(c) {
  await commands(c, s.commands.read)
  await show('hGetAll', () => c.hGetAll('{k}:h'))
  await show('zRangeWithScores', () => c.zRangeWithScores('{k}:z', 0, -1))
  await show('xRange', () => c.xRange('{k}:x', '-', '+'))
  await show('xInfoGroups', () => c.xInfoGroups('{k}:x'))
  await show('geoPos', () => c.geoPos('{k}:g', 'rome'))
  await show('configGet', () => c.configGet('maxmemory'))
  await show('buffer', () => c.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).dump('{k}:s'))
  await show('big', () => c.get('{k}:big'))
  await show('at once', () => Promise.all([0, 1, 2, 3].map((i) => c.getRange('{k}:s', i, -1))))
  await show('multi', () => c.multi().get('{k}:s').strLen('{k}:s').zRange('{k}:z', 0, -1).exec())
  await show('multi with a failure', () => c.multi().get('{k}:s').lLen('{k}:s').exec())
  await show('pipeline', () => c.multi().get('{k}:s').hGetAll('{k}:h').execAsPipeline())
  await show('multi with an error in its queue', () => c.multi().get('{k}:s').addCommand(['TIME', 'no such argument']).exec())
  await show('scan', async () => {
    const keys = []
    for await (const some of c.scanIterator({ MATCH: '{k}:*', COUNT: 3 })) keys.push(...some)
    return [...new Set(keys)].sort()
  })
  await show('pool', async () => {
    const pool = await createClientPool(options(s.bind ? '' : s.token), { minimum: 1, maximum: 3 }).connect()
    const got = await Promise.all([0, 1, 2, 3, 4].map((i) => pool.getRange('{k}:s', i, -1)))
    await pool.close()
    return got
  })
  if (s.resp === 3) {
    await show('client side cache', async () => {
      const cached = await connected(s.token, { clientSideCache: { ttl: 0, maxEntries: 10 } })
      const got = [await cached.get('{k}:s'), await cached.get('{k}:s'), await cached.sendCommand(['CLIENT', 'TRACKINGINFO'])]
      await cached.close()
      return got
    })
  }
}

async function pubsub(c) {
  const sub = await connected(s.token)
  const sharded = await connected(s.token)
  const got = []
  const hear = (m, channel) => got.push(`${channel} ${m.slice(0, 40)}`)
  await show('subscribe', () => sub.subscribe(['{k}:one', '{k}:two'], hear))
  await show('pSubscribe', () => sub.pSubscribe('{k}:t*', hear))
  await show('sSubscribe', () => sharded.sSubscribe('{k}:shard', hear))
  await show('publish', () => Promise.all([c.publish('{k}:one', 'hello'), c.publish('{k}:two', s.big), c.sPublish('{k}:shard', 'to a shard')]))
  while (got.length < 4) await Promise.all([sub.ping(), sharded.ping()])
  await show('received', () => got.sort())
  await show('unsubscribe', async () => [await sub.pUnsubscribe('{k}:t*'), await sub.unsubscribe(['{k}:one', '{k}:two']), await sharded.sUnsubscribe('{k}:shard')])
  await show('get', () => sub.get('{k}:s'))
  await sub.close()
  await sharded.close()
}

async function session() {
  const c = await connected(s.token)
  await commands(c, s.commands.session)
  await show('set', () => c.set('{k}:big', s.big))
  await show('buffers', async () => [await c.set('{k}:bytes', Buffer.from([0, 255, 13, 10])), await c.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).get('{k}:bytes')])
  await show('hSet', () => c.hSet('{k}:map', { a: 1, b: 2 }))
  await show('zAdd', () => c.zAdd('{k}:zz', [{ score: 1.5, value: 'a' }, { score: 2, value: 'b' }]))
  await show('zIncrBy', () => c.zIncrBy('{k}:zz', 0.25, 'a'))
  await show('blPop', () => c.blPop(['{k}:none', '{k}:l'], 1))
  await show('xReadGroup', () => c.xReadGroup('g', 'c2', { key: '{k}:x', id: '>' }, { BLOCK: 10 }))
  await show('at once', async () => {
    const all = Array.from({ length: 2000 }, (_, i) => c.rPush('{k}:many', String(i)))
    all.push(c.incr('{k}:s').catch((e) => e), c.lLen('{k}:many'), c.set('{k}:big2', s.big), c.strLen('{k}:big2'))
    return (await Promise.all(all)).slice(1990)
  })
  await show('multi', () => {
    const m = c.multi()
    for (let i = 0; i < 100; i++) m.incr('{k}:tx')
    return m.hSet('{k}:txh', 'f', 'v').hGetAll('{k}:txh').exec()
  })
  await show('multi with a failure', () => c.multi().incr('{k}:s').incr('{k}:tx').exec())
  await show('aborted', () => c.multi().set('{k}:aborted', '1').addCommand(['SET', '{k}:aborted']).exec())
  const other = await connected(s.token, { name: 'named' })
  for (const disturbed of [false, true]) {
    await show('watch', async () => {
      await c.watch('{k}:tx')
      const n = await c.get('{k}:tx')
      if (disturbed) await other.set('{k}:tx', '0')
      return c.multi().set('{k}:tx', String(n * 2)).exec()
    })
  }
  await show('name', () => other.clientGetName())
  await show('another database', async () => [await other.select(1), await other.set('x', '1'), await other.keys('*'), await other.flushDb(), await other.dbSize()])
  await show('script', async () => [await c.addTo('{k}:sn', 7), await c.addTo('{k}:sn', 7)])
  await pubsub(c)
  if (s.resp === 3) {
    await show('client side cache, invalidated', async () => {
      const cached = await connected(s.token, { clientSideCache: { ttl: 0, maxEntries: 10 } })
      const got = [await c.set('{k}:cached', 'a'), await cached.get('{k}:cached'), await cached.get('{k}:cached'), await c.set('{k}:cached', 'b')]
      while ((await cached.get('{k}:cached')) !== 'b') await new Promise(setImmediate)
      await cached.close()
      return got
    })
  }
  await reads(c)
  await other.close()
  await show('close', () => Promise.all([c.set('{k}:last', '1'), c.close()]))
}

async function read() {
  await reads(await connected(s.token))
}

async function refused() {
  const c = await connected()
  await attempt('set', () => c.set('{k}:late', '1'))
  await attempt('big', () => c.set('{k}:late', s.big))
  await attempt('blPop', () => c.blPop('{k}:queue', 0))
  await attempt('xReadGroup', () => c.xReadGroup('g', 'c', { key: '{k}:x', id: '>' }))
  await attempt('eval', () => c.eval("return redis.call('SET', KEYS[1], 1)", { keys: ['{k}:late'] }))
  await attempt('script', () => c.addTo('{k}:late', 1))
  await attempt('publish', () => c.publish('c', 'm'))
  await attempt('flushAll', () => c.flushAll())
  await attempt('at once', async () => {
    const [before, late, after] = await Promise.allSettled([c.get('{k}:s'), c.set('{k}:late', '1'), c.get('{k}:s')])
    if (!before.value || before.value !== after.value) console.log('its neighbours:', before, after)
    throw late.reason
  })
  await attempt('multi', () => c.multi().get('{k}:s').set('{k}:late', '1').exec().catch(why))
  await attempt('pipeline', () => c.multi().get('{k}:s').set('{k}:late', '1').execAsPipeline().catch(why))
}

// why throws the first error of several commands, rather than the library's or the server's about them all.
function why(e) {
  throw (e.errors && [...e.errors()][0]) || e
}

async function ways() {
  const status = async (what, more, first) => {
    const c = createClient({ socket, RESP: s.resp, ...more })
    await c.connect()
    if (first) await c.sendCommand(first)
    console.log(`${what}: ${s.state(await c.sendCommand(['FENCE', 'STATUS']))}`)
    await c.close()
  }
  const short = `;token=${s.token}`
  await status('none', { username: 'app', password: s.password })
  await status('user name', { username: `app;election=${s.election}${short}`, password: s.password })
  await status('default election', { username: 'app' + short, password: s.password })
  await status('default user', { username: short, password: 'x' })
  await status('url', { url: `${s.ca ? 'rediss' : 'redis'}://${encodeURIComponent('app' + short)}:${s.password}@${s.host}:${s.port}`, socket: tls })
  await status('credentials provider', {
    credentialsProvider: { type: 'async-credentials-provider', credentials: async () => ({ username: 'app' + short, password: s.password }) }
  })
  await status('FENCE BIND', { username: 'app', password: s.password }, ['FENCE', 'BIND', s.election, s.token])
}

async function loss() {
  let token = s.token
  const blocked = async (what, f) => {
    console.log('@blocked')
    await lost(what, f)
  }
  const flood = async (f) => {
    console.log('@flooding')
    await lost('flood', async () => {
      for (;;) await f()
    })
  }
  const ways = {
    'one command': async (c) => {
      await ask('@idle')
      await lost('set', () => c.set('{k}:late', '1'))
    },
    blPop: (c) => blocked('blPop', () => c.blPop('{k}:queue', 0)),
    xReadGroup: (c) => blocked('xReadGroup', () => c.xReadGroup('g', 'c', { key: '{k}:stream', id: '>' }, { BLOCK: 0 })),
    watch: s.cluster ? null : async (c) => { // the library has none in a cluster
      await c.watch('{k}:then')
      await ask('@idle')
      await lost('watch', () => c.multi().set('{k}:late', '1').exec().catch(why))
    },
    'at once': async (c) => {
      console.log('@blocked')
      const all = await Promise.allSettled([c.incr('{k}:early'), c.blPop('{k}:queue', 0), c.set('{k}:late', '1'), c.append('{k}:late', '1')])
      for (const r of all.slice(1)) await lost('at once', async () => { if (r.reason) throw r.reason })
    },
    pipeline: (c) => blocked('pipeline', () => c.multi().incr('{k}:early').blPop('{k}:queue', 0).set('{k}:late', '1').execAsPipeline().catch(why)),
    flood: (c) => flood(() => Promise.all(Array.from({ length: 100 }, () => c.incr('{k}:flood')))),
    'flood of transactions': (c) => flood(() => c.multi().incr('{k}:flood').incr('{k}:flood').exec().catch(why))
  }
  ways.subscribed = s.cluster ? null : async (c) => {
    const sub = await connected(token)
    let hear
    const heard = new Promise((resolve) => (hear = resolve))
    await sub.subscribe('{k}:channel', hear)
    const ready = new Promise((resolve) => sub.once('ready', resolve))
    await ask('@idle')
    await ready // on a new connection
    await lost('set', () => c.set('{k}:late', '1'))
    console.log('@publish')
    await heard
    await sub.close()
  }
  for (const [name, lose] of Object.entries(ways).filter(([, lose]) => lose)) {
    const c = await connected(token)
    await lose(c)
    await again(() => c.get('{k}:then'))
    await c.set('{k}:late again', '1').then(
      () => console.log('ok but should not'),
      (e) => console.log(`again refused ${name} ${s.failure(e)}`)
    )
    await leave(c)
    token = await ask('@again')
    const next = await connected(token)
    await next.incr('{k}:kept')
    console.log('again writes')
    await leave(next)
  }
  for (const e of new Set(events)) console.log('event', e)
}

async function clusterReads(c) {
  for (const k of s.clusterKeys) await show(k, () => c.get(k))
  await show('at once', () => Promise.all(s.clusterKeys.map((k) => c.get(k))))
  await show('lRange', () => c.lRange('{k}:l', 0, -1))
  await show('mGet', () => c.mGet(['key:1', 'key:2']))
  await show('primaries', async () => {
    const clients = await Promise.all(c.masters.map((m) => c.nodeClient(m)))
    const found = await Promise.all(clients.map((n) => n.keys('key:*')))
    return [found.length, found.flat().length]
  })
}

async function clusterSession() {
  const c = await connected(s.token)
  for (const k of s.clusterKeys) await show(k, () => c.set(k, k))
  for (const k of s.clusterKeys) await show('append', () => c.append(k, 'x'))
  await show('multi', () => c.multi().incr('{k}:n').rPush('{k}:l', ['1', '2', '3']).get('{k}:n').exec())
  await show('script', () => c.addTo('{k}:n', 7))
  await show('mSet', () => c.mSet({ 'key:1': '1', 'key:2': '2' }))
  await show('blPop', () => c.blPop('{k}:l', 1))
  let hear
  const heard = (n) => new Promise((resolve) => (hear = (m, channel) => --n || resolve([m, channel])))
  await show('subscribe', () => c.subscribe('channel', (m, channel) => hear(m, channel)))
  await show('publish', async () => {
    const one = heard(1)
    await c.publish('channel', 'hello')
    return one
  })
  await show('sSubscribe', () => c.sSubscribe('key:3', (m, channel) => hear(m, channel)))
  await show('sPublish', async () => {
    const one = heard(1)
    await c.sPublish('key:3', 'to a shard')
    return one
  })
  await clusterReads(c)
}

async function clusterRefused() {
  const c = await connected('')
  for (const k of s.clusterKeys) await attempt('set', () => c.set(`late:${k}`, '1'))
}

const inCluster = { session: clusterSession, read: async () => clusterReads(await connected('')), refused: clusterRefused, loss }
s.run(s.cluster ? inCluster : { session, read, refused, ways, loss })
