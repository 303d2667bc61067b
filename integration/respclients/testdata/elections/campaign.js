'use strict'

// Campaigns by ELECTION commands (ioredis in RESP2, node-redis in RESP3) or over HTTP (fetch).

const readline = require('readline')

const { ELECTION: election, NAME: name, HOST: host, PORT, API: api, API_TOKEN: bearer } = process.env
const port = Number(PORT)
const [way] = process.argv.slice(2)

async function connected() {
  if (way === 'noderedis') {
    const c = require('redis').createClient({ socket: { host, port }, RESP: 3 })
    c.on('error', () => {})
    await c.connect()
    return (...args) => c.sendCommand(args.map(String))
  }
  const c = new (require('ioredis'))({ host, port, lazyConnect: true, retryStrategy: null })
  c.on('error', () => {})
  await c.connect()
  return (...args) => c.call(...args)
}

async function main() {
  const send = await connected()
  const asked = async (call, ...args) => {
    const answer = await send('ELECTION', call, election, ...args)
    if (!Array.isArray(answer)) return answer // a map of RESP3
    return Object.fromEntries(answer.flatMap((k, i) => (i % 2 ? [] : [[k, answer[i + 1]]])))
  }
  const http = async (call, body) => {
    const answer = await fetch(`${api}/${call}`, {
      method: body ? 'POST' : 'GET',
      headers: { Authorization: `Bearer ${bearer}`, 'Content-Type': 'application/json' },
      body: body && JSON.stringify(body)
    })
    return answer.json()
  }
  const acquire = () => (way === 'http' ? http('acquire', { owner: name, ttl_ms: 60000 }) : asked('ACQUIRE', 'OWNER', name, 'TTL', 60000))
  const watch = (number) => (way === 'http' ? http(`watch?number=${number}`) : asked('WATCH', number))
  const resign = (token) => (way === 'http' ? http('resign', { token }) : asked('RESIGN', token))
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const write = async () => {
    try {
      await send('SET', 'written:' + election, name)
      console.log('wrote')
    } catch (e) {
      console.log('refused', e.message.split(' ')[0])
    }
  }

  let won = await acquire()
  while (won.outcome !== 'acquired') {
    console.log('busy', won.owner)
    await watch(won.number)
    won = await acquire()
  }
  console.log('leads', won.number)
  await send('FENCE', 'BIND', election, won.token)
  await write()
  await lines.next()
  console.log((await resign(won.token)).outcome)
  await lines.next()
  await write()
  process.exit(0)
}

main().catch((e) => {
  console.error(e)
  process.exit(1)
})
