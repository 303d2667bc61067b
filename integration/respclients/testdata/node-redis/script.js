'use strict'
// What the scripts of ioredis and node-redis share; see script in transcript_test.go for
// the modes and losing in loss_test.go for what is printed of a loss.

const crypto = require('crypto')
const fs = require('fs')
const path = require('path')
const readline = require('readline')

const env = process.env
exports.host = env.REDIS_HOST
exports.port = Number(env.REDIS_PORT)
exports.user = env.REDIS_USER
exports.password = env.REDIS_PASSWORD
exports.election = env.FENCE_ELECTION
exports.cluster = Boolean(env.REDIS_CLUSTER)
exports.bind = Boolean(env.FENCE_BIND)
exports.resp = Number(env.RESP || 2)
exports.token = env.FENCE_TOKEN
exports.commands = JSON.parse(fs.readFileSync(path.join(__dirname, '..', 'commands.json')))
// ca is the authority of both sides: with TLS.
exports.ca = env.REDIS_CA && fs.readFileSync(env.REDIS_CA)
exports.big = '0123456789abcdef'.repeat(1 << 16)

// username is the user name with a token in it.
exports.username = (token) => (token && !exports.bind ? `app;election=${exports.election};token=${token}` : 'app')

function text(v) {
  return JSON.stringify(v, (_, x) => {
    if (x instanceof Error) return failure(x)
    if (x instanceof Map) return { map: [...x] }
    if (x && x.type === 'Buffer') return '\\x' + Buffer.from(x.data).toString('hex')
    return typeof x === 'bigint' ? `${x}n` : x
  })
}

function failure(e) {
  return `${e.constructor.name} ${e.message}`.replaceAll('\n', ' / ')
}

// isClosing says whether an error is what a library or Node says of a connection that the other
// side has closed. Node's words differ by what was under way, and with TLS; its codes do not.
function isClosing(e) {
  return ['ECONNRESET', 'EPIPE', 'ERR_STREAM_DESTROYED', 'ERR_STREAM_WRITE_AFTER_END'].includes(e.code) ||
    /^(Socket closed unexpectedly|The client is closed|Connection is closed|Command aborted due to connection close)/.test(e.message)
}

exports.isClosing = isClosing
exports.text = text
exports.failure = failure

// show prints what came of something.
exports.show = async (what, f) => {
  try {
    let got = text(await f())
    if (got && got.length > 2000) got = got.length + ' ' + crypto.createHash('sha256').update(got).digest('hex')
    console.log(`${what}: ${got}`)
  } catch (e) {
    console.log(`${what}: ${failure(e)}`)
  }
}

// attempt prints the exception of a write that must be refused.
exports.attempt = async (what, f) => {
  try {
    console.log(`${what}: ok but should not: ${text(await f())}`)
  } catch (e) {
    console.log(`${what}: ${failure(e)}`)
  }
}

let lines
exports.ask = async (what) => {
  lines ??= readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  console.log(what)
  return (await lines.next()).value
}

exports.lost = async (what, f) => {
  try {
    console.log(`ok but should not: ${what} ${text(await f())}`)
  } catch (e) {
    console.log(`lost ${what}: ${failure(e)} ${e.code ?? ''}`)
  }
}

// again reads with the client that was lost. What follows an error at once may still meet the
// connection that closes.
exports.again = async (f) => {
  for (let tries = 0; tries < 5; tries++) {
    try {
      if (await f()) return console.log('again reads')
    } catch (e) {
      if (!isClosing(e)) throw e
    }
  }
}

exports.state = (status) => {
  if (status instanceof Map) return status.get('state')
  return Array.isArray(status) ? status[1] : status.state
}

// clusterKeys are spread over a cluster.
exports.clusterKeys = Array.from({ length: 60 }, (_, i) => `key:${i}`)

exports.run = (modes) => {
  modes[process.argv[2]]().then(
    () => {
      console.log('done')
      process.exit(0)
    },
    (e) => {
      console.error(e)
      process.exit(1)
    }
  )
}
