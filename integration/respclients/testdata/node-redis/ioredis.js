'use strict'

const Redis = require('ioredis')
const s = require('./script')
const { show, attempt, ask, lost, again } = s

const at = { host: s.host, port: s.port, password: s.password, tls: s.ca && { ca: s.ca } }

// connected has the library's own defaults, but for what the place says.
async function connected(token, more) {
  const one = { ...at, username: s.username(token), lazyConnect: true, ...more }
  const c = s.cluster ? new Redis.Cluster([{ host: s.host, port: s.port }], { redisOptions: { ...one, host: undefined, port: undefined }, lazyConnect: true }) : new Redis(one)
  // Without a listener the library prints what it lost and goes on.
  c.on('error', (e) => s.isClosing(e) || events.push(s.failure(e)))
  await c.connect()
  if (s.bind && token) await c.call('FENCE', 'BIND', s.election, token)
  return c
}
const events = []

async function commands(c, list) {
  for (const [name, ...args] of list) await show(`${name} ${args}`.slice(0, 60), () => c.call(name, ...args))
}

async function reads(c) {
  await commands(c, s.commands.read)
  await show('hgetall', () => c.hgetall('{k}:h'))
  await show('buffer', () => c.dumpBuffer('{k}:s'))
  await show('big', () => c.get('{k}:big'))
  await show('pipeline', () => {
    const p = c.pipeline()
    for (let i = 0; i < 300; i++) p.getrange('{k}:s', i % 4, -1)
    return p.lrange('{k}:s', 0, 1).hgetall('{k}:h').exec()
  })
  await show('multi', () => c.multi().get('{k}:s').llen('{k}:s').zrange('{k}:z', 0, -1, 'WITHSCORES').exec())
  await show('multi with an error in its queue', () => c.multi().get('{k}:s').call('TIME', 'no such argument').exec())
  await show('at once', () => Promise.all([0, 1, 2, 3].map((i) => c.getrange('{k}:s', i, -1))))
  await show('scan', async () => {
    const keys = []
    for await (const some of c.scanStream({ match: '{k}:*', count: 3 })) keys.push(...some)
    return [...new Set(keys)].sort()
  })
  await show('auto pipelining', async () => {
    const auto = await connected(s.token, { enableAutoPipelining: true })
    const got = await Promise.all([0, 1, 2, 3].map((i) => auto.getrange('{k}:s', i, -1)))
    auto.disconnect()
    return got
  })
}

async function pubsub(c) {
  const sub = await connected(s.token)
  const sharded = await connected(s.token)
  const got = []
  for (const e of ['message', 'pmessage', 'smessage']) {
    for (const c of [sub, sharded]) c.on(e, (...m) => got.push([e, ...m].map((x) => x.slice(0, 40))))
  }
  await show('subscribe', () => sub.subscribe('{k}:one', '{k}:two'))
  await show('psubscribe', () => sub.psubscribe('{k}:t*'))
  await show('ssubscribe', () => sharded.ssubscribe('{k}:shard'))
  await show('ping', () => sub.ping())
  await show('publish', () => Promise.all([c.publish('{k}:one', 'hello'), c.publish('{k}:two', s.big), c.spublish('{k}:shard', 'to a shard')]))
  while (got.length < 4) await sub.ping()
  await show('received', () => got.map(String).sort())
  await show('get', () => sub.get('{k}:s'))
  await show('unsubscribe', async () => [await sub.punsubscribe('{k}:t*'), await sub.unsubscribe('{k}:one', '{k}:two')])
  await show('get', () => sub.get('{k}:s'))
  sub.disconnect()
  sharded.disconnect()
}

async function session() {
  const c = await connected(s.token)
  await commands(c, s.commands.session)
  await show('set', () => c.set('{k}:big', s.big))
  await show('buffers', async () => [await c.set('{k}:bytes', Buffer.from([0, 255, 13, 10])), await c.getBuffer('{k}:bytes')])
  await show('hset', () => c.hset('{k}:map', new Map([['a', 1], ['b', 2]])))
  await show('pipeline', async () => {
    const p = c.pipeline()
    for (let i = 0; i < 2000; i++) p.rpush('{k}:many', i)
    return p.incr('{k}:s').llen('{k}:many').set('{k}:big2', s.big).strlen('{k}:big2').exec()
  })
  await show('multi', async () => {
    const m = c.multi()
    for (let i = 0; i < 100; i++) m.incr('{k}:tx')
    return m.incr('{k}:s').hset('{k}:txh', 'f', 'v').hgetall('{k}:txh').exec()
  })
  await show('aborted', () => c.multi().set('{k}:aborted', 1).call('SET', '{k}:aborted').exec())
  await show('no pipeline', async () => {
    const got = [await c.multi({ pipeline: false }), await c.set('{k}:one', 1), await c.incr('{k}:one')]
    return [...got, await c.exec()]
  })
  const other = await connected(s.token, { connectionName: 'named', db: 1 })
  for (const disturbed of [false, true]) {
    await show('watch', async () => {
      await c.watch('{k}:tx')
      const n = await c.get('{k}:tx')
      if (disturbed) await other.select(0).then(() => other.set('{k}:tx', 0)).then(() => other.select(1))
      return c.multi().set('{k}:tx', n * 2).exec()
    })
  }
  await show('discard', async () => [await c.multi({ pipeline: false }), await c.discard()])
  await show('name', () => other.client('GETNAME'))
  await show('another database', async () => [await other.set('x', 1), await other.keys('*'), await other.flushdb(), await other.dbsize()])
  c.defineCommand('addto', { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])" })
  await show('defined', async () => [await c.addto('{k}:sn', 7), await c.addto('{k}:sn', 7), await c.pipeline().addto('{k}:sn', 1).addtoBuffer('{k}:sn', 1).exec()])
  await pubsub(c)
  await show('transformed', () => c.xrange('{k}:x', '-', '+'))
  await reads(c)
  await show('quit', () => Promise.all([c.set('{k}:last', 1), c.quit()]))
  other.disconnect()
}

async function read() {
  await reads(await connected(s.token))
}

async function refused() {
  const c = await connected()
  await attempt('set', () => c.set('{k}:late', 1))
  await attempt('big', () => c.set('{k}:late', s.big))
  await attempt('blpop', () => c.blpop('{k}:queue', 0))
  await attempt('xreadgroup', () => c.xreadgroup('GROUP', 'g', 'c', 'STREAMS', '{k}:x', '>'))
  await attempt('eval', () => c.eval("return redis.call('SET', KEYS[1], 1)", 1, '{k}:late'))
  c.defineCommand('late', { numberOfKeys: 1, lua: "return redis.call('SET', KEYS[1], 1)" })
  await attempt('defined', () => c.late('{k}:late'))
  await attempt('publish', () => c.publish('c', 'm'))
  await attempt('flushall', () => c.flushall())
  const [before, late, after] = await c.pipeline().get('{k}:s').set('{k}:late', 1).get('{k}:s').exec()
  await attempt('pipeline', async () => {
    if (before[0] || after[0] || before[1] !== after[1]) console.log('its neighbours:', before, after)
    throw late[0]
  })
  await attempt('multi', () => c.multi().get('{k}:s').set('{k}:late', 1).exec().catch((e) => { throw e.previousErrors[0] }))
  await attempt('watch', () => c.watch('{k}:s').then(() => c.set('{k}:late', 1)))
}

async function ways() {
  const status = async (what, c) => {
    await c.ping()
    console.log(`${what}: ${s.state(await c.call('FENCE', 'STATUS'))}`)
    c.disconnect()
  }
  const short = `;token=${s.token}`
  await status('none', new Redis({ ...at, username: 'app' }))
  await status('user name', new Redis({ ...at, username: `app;election=${s.election}${short}` }))
  await status('default election', new Redis({ ...at, username: 'app' + short }))
  await status('default user', new Redis({ ...at, username: short }))
  await status('url', new Redis(`${s.ca ? 'rediss' : 'redis'}://${encodeURIComponent('app' + short)}:${s.password}@${s.host}:${s.port}`, { tls: at.tls }))
  const bound = new Redis({ ...at, username: 'app' })
  await bound.call('FENCE', 'BIND', s.election, s.token)
  await status('FENCE BIND', bound)
}

async function loss() {
  let token = s.token
  const ways = {
    'one command': async (c) => {
      await ask('@idle')
      await lost('set', () => c.set('{k}:late', 1))
    },
    blpop: (c) => {
      console.log('@blocked')
      return lost('blpop', () => c.blpop('{k}:queue', 0))
    },
    xreadgroup: (c) => {
      console.log('@blocked')
      return lost('xreadgroup', () => c.xreadgroup('GROUP', 'g', 'c', 'BLOCK', 0, 'STREAMS', '{k}:stream', '>'))
    },
    watch: s.cluster ? null : async (c) => { // the library has none in a cluster
      await c.watch('{k}:then')
      await ask('@idle')
      await lost('watch', () => c.multi().set('{k}:late', 1).exec().catch((e) => { throw (e.previousErrors || [e])[0] }))
    },
    pipeline: async (c) => {
      console.log('@blocked')
      let got
      await lost('pipeline', async () => {
        got = await c.pipeline().incr('{k}:early').blpop('{k}:queue', 0).set('{k}:late', 1).get('{k}:then').exec()
        throw got[1][0]
      })
      if (got) await lost('pipeline set', async () => { throw got[2][0] })
    },
    'at once': async (c) => {
      console.log('@blocked')
      const all = [c.incr('{k}:early'), c.blpop('{k}:queue', 0), c.set('{k}:late', 1), c.append('{k}:late', 1)]
      const [, ...late] = await Promise.allSettled(all)
      for (const r of late) await lost('at once', async () => { if (r.reason) throw r.reason })
    },
    flood: async (c) => {
      console.log('@flooding')
      await lost('flood', async () => {
        for (;;) {
          const p = c.pipeline()
          for (let i = 0; i < 100; i++) p.incr('{k}:flood')
          for (const [e] of await p.exec()) if (e) throw e
        }
      })
    },
    'flood of transactions': async (c) => {
      console.log('@flooding')
      await lost('flood', async () => {
        for (;;) await c.multi().incr('{k}:flood').incr('{k}:flood').exec().catch((e) => { throw (e.previousErrors || [e])[0] })
      })
    }
  }
  ways.subscribed = s.cluster ? null : async (c) => {
    const sub = await connected(token)
    await sub.subscribe('{k}:channel')
    const ready = new Promise((resolve) => sub.once('ready', resolve))
    await ask('@idle')
    await ready // on a new connection
    await lost('set', () => c.set('{k}:late', 1))
    const heard = new Promise((resolve) => sub.on('message', (...m) => resolve(m)))
    console.log('@publish')
    await heard
    sub.disconnect()
  }
  for (const [name, lose] of Object.entries(ways).filter(([, lose]) => lose)) {
    const c = await connected(token)
    await lose(c)
    await again(() => c.get('{k}:then'))
    await c.set('{k}:late again', 1).then(
      () => console.log('ok but should not'),
      (e) => console.log(`again refused ${name} ${s.failure(e)}`)
    )
    c.disconnect()
    token = await ask('@again')
    const next = await connected(token)
    await next.incr('{k}:kept')
    console.log('again writes')
    next.disconnect()
  }
  for (const e of events) console.log('event', e)
}

async function clusterReads(c) {
  for (const k of s.clusterKeys) await show(k, () => c.get(k))
  await show('at once', () => Promise.all(s.clusterKeys.map((k) => c.get(k))))
  await show('lrange', () => c.lrange('{k}:l', 0, -1))
  await show('mget', () => c.mget('key:1', 'key:2'))
  await show('keyslot', () => c.cluster('KEYSLOT', '{k}'))
  await show('primaries', async () => {
    const found = await Promise.all(c.nodes('master').map((n) => n.keys('key:*')))
    return [found.length, found.flat().length]
  })
}

async function clusterSession() {
  const c = await connected(s.token)
  for (const k of s.clusterKeys) await show(k, () => c.set(k, k))
  await show('at once', () => Promise.all(s.clusterKeys.map((k) => c.append(k, 'x'))))
  await show('pipeline', () => c.pipeline().incr('{k}:n').rpush('{k}:l', 1, 2, 3).lpush('{k}:n', 1).exec())
  await show('multi', () => c.multi().incr('{k}:n').get('{k}:n').exec())
  c.defineCommand('addto', { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])" })
  await show('defined', () => c.addto('{k}:n', 7))
  await show('mset', () => c.mset('key:1', 1, 'key:2', 2))
  await show('blpop', () => c.blpop('{k}:l', 1))
  await show('subscribe', () => c.subscribe('channel'))
  const heard = new Promise((resolve) => c.on('message', (...m) => resolve(m)))
  await show('publish', async () => [await c.publish('channel', 'hello'), await heard].slice(1))
  await show('to a shard', () => c.spublish('key:3', 'hello'))
  await clusterReads(c)
}

async function clusterRefused() {
  const c = await connected('')
  for (const k of s.clusterKeys) await attempt('set', () => c.set(`late:${k}`, 1))
}

const inCluster = { session: clusterSession, read: async () => clusterReads(await connected('')), refused: clusterRefused, loss }
s.run(s.cluster ? inCluster : { session, read, refused, ways, loss })
