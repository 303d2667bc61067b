'use strict'
// node-postgres with its pool, cursors and COPY streams; see script in transcript_test.go
// for the modes.

const crypto = require('crypto')
const events = require('events')
const readline = require('readline')
const stream = require('stream')
const { pipeline } = require('stream/promises')
const pg = require('pg')
const Cursor = require('pg-cursor')
const copy = require('pg-copy-streams')

const TOKEN = process.env.FENCE_TOKEN

function text(v) {
  return JSON.stringify(v, (_, x) => (x && x.type === 'Buffer' ? '\\x' + Buffer.from(x.data).toString('hex') : x))
}

function failure(e) {
  const fields = ['severity', 'detail', 'hint', 'position', 'schema', 'table', 'column', 'constraint', 'where', 'routine']
  return `${e.constructor.name} ${e.code} ${e.message} | ` + fields.map((f) => e[f]).join(' | ')
}

async function show(what, f) {
  try {
    let got = text(await f())
    if (got && got.length > 2000) got = crypto.createHash('sha256').update(got).digest('hex')
    console.log(`${what}: ${got}`)
  } catch (e) {
    console.log(`${what}: ${failure(e)}`)
  }
}

function watch(client) {
  client.on('notice', (n) => console.log(`notice: ${n.severity} ${n.code} ${n.message} | ${n.detail} | ${n.hint}`))
  return client
}

async function connected(config) {
  const c = watch(new pg.Client(config))
  await c.connect()
  return c
}

// untilAsleep waits until the client's query sleeps.
async function untilAsleep(c) {
  const other = await connected()
  while (!(await other.query("select 1 from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'", [c.processID])).rowCount);
  await other.end()
}

async function reads(c) {
  const rows = async (...q) => (await c.query(...q)).rows

  await show('types', () => rows(`select 1 as a, 2::bigint as b, 1.5::float8 as c, 12345678901234567890.123456789::numeric as d, 'text' as e, null as f,
    true as g, '\\x00ff'::bytea as h, array[1, null, 3] as i, array[['a', 'b'], ['c', null]] as j, '{"a": [1, null]}'::jsonb as k,
    '2020-02-29 12:34:56.789+00'::timestamptz as l, '1 day 2 hours'::interval as m, '(1,2)'::point as n, int4range(1, 5) as o`))
  await show('parameters', () => rows('select $1::int a, $2::text b, $3::bytea c, $4::text d, $5::int[] e, $6::jsonb f, $7::timestamptz g',
    [1, 't', Buffer.from([0, 255]), null, [1, null, 2], { k: [1] }, new Date(0)]))
  await show('array mode', () => rows({ text: 'select id, name from t order by id limit 2', rowMode: 'array' }))
  await show('fields', async () => (await c.query('select id, name from t limit 0')).fields.map((f) => [f.name, f.dataTypeID, f.format]))
  for (const id of [1, 2, 999]) await show('prepared', () => rows({ name: 'by id', text: 'select name from t where id = $1', values: [id] }))
  await show('binary', () => rows({ text: 'select 1::int4 a, 2::int8 b', binary: true }))
  await show('several', async () => (await c.query("select 1 as a; select 'two' as b; select 3 as c where false")).map((r) => [r.command, r.rows]))
  await show('empty', () => rows(''))
  await show('divide', () => rows('select 1 / 0'))
  await show('nowhere', () => rows('select * from nowhere'))
  await show('bad value', () => rows('select $1::int', ['x']))
  await show('at once', () => Promise.all([1, 2, 3, 4, 5].map((i) => rows('select $1::int as i', [i]))))
  await show('at once, one fails', async () =>
    (await Promise.allSettled([rows('select 1 as a'), rows('select 1 / $1::int', [0]), rows('select 3 as c')])).map((r) => r.value || r.reason.code))
  await show('cursor', async () => {
    const cur = c.query(new Cursor('select i from generate_series(1, $1::int) i', [1000]))
    const got = [(await cur.read(3)).length, (await cur.read(500)).length, (await cur.read(5000)).length, (await cur.read(1)).length]
    await cur.close()
    return got
  })
  await show('cursor, closed early', async () => {
    const cur = c.query(new Cursor('select i from generate_series(1, 1000000) i'))
    const got = (await cur.read(2)).map((r) => r.i)
    await cur.close()
    return got
  })
  await show('copy out', async () => {
    const h = crypto.createHash('sha256')
    let n = 0
    for await (const chunk of c.query(copy.to('copy (select id, name from t order by id) to stdout'))) {
      h.update(chunk)
      n += chunk.length
    }
    return [n, h.digest('hex')]
  })
  await show('large', () => rows('select length($1), md5($2)', ['x'.repeat(3000000), 'y'.repeat(3000000)]))
  await show('large back', async () => (await rows("select repeat('z', 3000000) as z"))[0].z.length)
  await c.query('set statement_timeout = 100')
  await show('timeout', () => rows('select pg_sleep(600)'))
  await c.query('reset statement_timeout')
  await c.query('begin isolation level serializable read only')
  await show('serializable', () => rows("select count(*), current_setting('transaction_isolation') i from t"))
  await c.query('commit')
  await c.query('discard all')
  await show('after discard all', () => rows("select 'here' as h"))
  // Last: for one cancel the server signals its process twice, and the second may come late.
  await show('cancel', async () => {
    const sleeping = rows('select pg_sleep(600)')
    // node-postgres has no cancel of its own but this, which sends a CancelRequest.
    const canceller = new pg.Client()
    await untilAsleep(c)
    canceller.cancel(c, c._getActiveQuery())
    return sleeping
  })
  await show('next', () => rows("select 'next' as n"))
}

async function session() {
  const c = await connected()
  const rows = async (...q) => (await c.query(...q)).rows
  const command = async (...q) => {
    const r = await c.query(...q)
    return [r.command, r.rowCount]
  }

  await show('drop', () => command('drop table if exists t'))
  await show('create', () => command('create table t (id int primary key check (id > 0), name text, raw bytea, n numeric, tags text[], doc jsonb, at timestamptz)'))
  await show('insert', () => rows('insert into t values ($1, $2, $3, $4, $5, $6, $7) returning *',
    [1, 'one', Buffer.from([0, 1, 254]), '1.50', ['a', null, 'c'], JSON.stringify({ a: null }), new Date(0)]))
  for (let i = 2; i < 12; i++) await c.query({ name: 'ins', text: 'insert into t (id, name) values ($1, $2)', values: [i, 'n' + i] })
  await show('update', () => command('update t set name = upper(name) where id in (2, 3)'))
  await show('duplicate', () => command('insert into t (id) values ($1)', [1]))
  await show('check', () => command('insert into t (id) values (-1)'))
  const copyIn = async (lines) => {
    const into = c.query(copy.from('copy t (id, name) from stdin'))
    await pipeline(stream.Readable.from(lines), into)
    return into.rowCount
  }
  await show('copy in', () => copyIn(Array.from({ length: 2000 }, (_, i) => `${i + 100}\tc${i}\n`)))
  await show('copy in that fails', () => copyIn(['5000\tx\n', '1\tagain\n']))
  await show('count', () => rows('select count(*) from t'))
  await c.query('begin')
  await c.query("update t set name = 'in' where id = 1")
  await c.query('savepoint a')
  await show('inside', () => command('insert into t (id) values (1)'))
  await show('aborted', () => rows('select 1'))
  await c.query('rollback to a')
  await show('commit', () => command('commit'))
  await show('name', () => rows('select name from t where id = 1'))
  await show('aborted commit', async () => {
    await c.query('begin')
    await c.query('select 1 / 0').catch(() => {})
    return command('commit')
  })
  await show('several', async () => (await c.query("insert into t (id) values (7000); update t set name = 'm' where id = 7000; select name from t where id = 7000")).map((r) => [r.command, r.rowCount, r.rows]))
  await show('several, one fails', () => command('insert into t (id) values (7001); select 1 / 0'))
  await show('none landed', () => rows('select count(*) from t where id = 7001'))
  await show('at once', async () =>
    (await Promise.allSettled([8000, 1, 8001].map((i) => command('insert into t (id) values ($1)', [i])))).map((r) => r.value || r.reason.code))
  await show('cursor returning', async () => {
    const cur = c.query(new Cursor("update t set name = 'cur' where id between 2 and 6 returning id"))
    const got = [await cur.read(2), await cur.read(10)]
    await cur.close()
    return got
  })
  await show('notices', () => command("do $$ begin raise notice 'hello' using hint = 'h'; raise warning 'careful'; end $$"))
  await show('raise', () => command("do $$ begin raise exception 'mine' using errcode = 'MY001', detail = 'd'; end $$"))
  await show('notify', async () => {
    const got = []
    c.on('notification', (n) => got.push([n.channel, n.payload, n.processId === c.processID]))
    await c.query('listen l')
    await c.query("notify l, 'payload'")
    const other = await connected()
    await other.query("select pg_notify('l', 'of another')")
    await other.end()
    while (got.length < 2) await events.once(c, 'notification')
    return got
  })
  await reads(c)
  await show('write after discard all', () => rows("update t set name = 'again' where id = 5 returning name"))
  await c.end()
  await show('closed', () => c.query('select 1'))

  const pool = new pg.Pool({ max: 4 })
  await show('pool', async () => (await Promise.all(Array.from({ length: 20 }, (_, i) => pool.query('select $1::int as i', [i])))).map((r) => r.rows[0].i))
  await show('pool write', async () => (await pool.query("insert into written values ('session') returning what")).rows)
  await pool.end()
  console.log('done')
}

async function read() {
  const c = await connected()
  await reads(c)
  await c.end()
  console.log('done')
}

async function refused() {
  const c = await connected()
  const attempt = async (what, f) => {
    try {
      console.log(what, 'passed:', text(await f()))
    } catch (e) {
      console.log(what, e.constructor.name, e.code, e.message)
    }
    if (what === 'block') await c.query('rollback')
    if ((await c.query('select 1 as one')).rows[0].one !== 1) console.log(what, 'out of step')
  }
  await attempt('insert', () => c.query("insert into written values ('stale')"))
  await attempt('parameters', () => c.query('insert into written values ($1)', ['stale']))
  await attempt('prepared', () => c.query({ name: 'w', text: 'insert into written values ($1)', values: ['stale'] }))
  await attempt('prepared again', () => c.query({ name: 'w', text: 'insert into written values ($1)', values: ['stale'] }))
  await attempt('several', () => c.query('select 1; delete from written; select 2'))
  await attempt('cursor', async () => {
    const cur = c.query(new Cursor('delete from written returning what'))
    return cur.read(1)
  })
  await attempt('copy', () => pipeline(stream.Readable.from(['stale\n']), c.query(copy.from('copy written from stdin'))))
  await attempt('block', async () => {
    await c.query('begin')
    await c.query("insert into written values ('stale')")
  })
  await attempt('at once', () => Promise.all([c.query('select 1'), c.query('delete from written'), c.query('select 2')]))
  await attempt('ddl', () => c.query('create table x (i int)'))
  await attempt('notify', () => c.query('notify l'))
  await attempt('read write', () => c.query('begin read write'))
  await c.end()
  console.log('done')
}

async function ways() {
  const status = async (what, config, set) => {
    const c = await connected(config)
    if (set) await c.query(set)
    const one = async (q) => Object.values((await c.query(q)).rows[0])[0]
    console.log(`${what}: ${await one('show fence.status')} ${await one('show fence.election')}`.trim())
    await c.end()
  }
  await status('PGOPTIONS')
  delete process.env.PGOPTIONS
  await status('none')
  await status('options', { options: `-c fence.token=${TOKEN}` })
  await status('connection string', { connectionString: `postgres:///?options=${encodeURIComponent('-c fence.token=' + TOKEN)}&host=${process.env.PGHOST}` })
  await status('SET', {}, `SET fence.token = '${TOKEN}'`)
  await status('SET, escaped', {}, `SET fence.token = ${pg.escapeLiteral(TOKEN)}`)
  console.log('done')
}

// leave ends a pool, which is over before the server's processes are: the administrator may
// still end one of them.
async function leave(pool) {
  pool.on('error', () => {})
  await pool.end()
}

async function loss() {
  let token = TOKEN
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const ask = async (what) => {
    console.log(what)
    return (await lines.next()).value.trim()
  }
  const variants = {
    statement: async (c) => {
      await ask('@written')
      await c.query("insert into written values ('lost too')")
    },
    commit: async (c) => {
      await ask('@written')
      await c.query('commit')
    },
    sleeping: async (c) => {
      console.log('@sleeping')
      await c.query('select pg_sleep(600)')
    },
    copying: async (c) => {
      await pipeline(
        (async function* () {
          yield 'lost too\n'
          await ask('@written')
          for (let i = 0; i < 1000; i++) yield 'lost too\n'.repeat(1000)
        })(),
        c.query(copy.from('copy written from stdin')),
      )
    },
    idle: async (c, ended) => {
      await ask('@written')
      await ended
      await c.query('select 1')
    },
  }
  delete process.env.PGOPTIONS
  for (const [name, variant] of Object.entries(variants)) {
    const config = { max: 1, options: token ? `-c fence.token=${token}` : undefined }
    const pool = new pg.Pool(config)
    const c = await pool.connect()
    // What arrives while no query runs is an event of the client's.
    const told = []
    const ended = new Promise((resolve) => c.once('end', resolve))
    c.on('error', (e) => told.push(`${e.constructor.name} ${e.code} ${e.severity} ${e.message}`))
    try {
      await c.query('begin')
      await c.query("insert into written values ('lost')")
      await variant(c, ended)
      console.log('lost', name, 'ok but should not')
    } catch (e) {
      told.push(`${e.constructor.name} ${e.code} ${e.severity} ${e.message}`)
    }
    await ended
    // Whether the query or the client's error event tells of it depends on which comes first.
    console.log(name === 'copying' ? 'told' : 'lost', name, told.find((e) => e.startsWith('DatabaseError')))
    console.log('told', name, told.join('; '))
    c.release(true)
    console.log('again reads', (await pool.query('select 1 as one')).rows[0].one)
    if (token) {
      await pool.query("insert into written values ('stale')").then(
        () => console.log('again ok but should not'),
        (e) => console.log('again', e.constructor.name, e.code, e.message),
      )
    }
    await leave(pool)
    token = await ask('@again')
    const fresh = new pg.Pool({ options: token ? `-c fence.token=${token}` : undefined })
    await fresh.query("insert into written values ('kept')")
    await leave(fresh)
    console.log('again writes')
  }
  process.stdin.destroy()
}

const modes = { session, read, refused, ways, loss }
modes[process.argv[2]]().catch((e) => {
  console.error(e)
  process.exit(1)
})
