// One of several workers. The one that leads writes to Redis through a fenceproxy; the
// others wait. It campaigns through the proxy too, by its ELECTION commands.
//
//     node worker.js a
'use strict';

const Redis = require('ioredis');

const PROXY = process.env.PROXY ?? 'redis://127.0.0.1:6380';
const LEASE = 1000 * (process.env.LEASE ?? 15); // milliseconds
const ELECTION = 'feeds';
const worker = process.argv[2];

let stopping = false;
for (const s of ['SIGINT', 'SIGTERM']) process.on(s, () => { stopping = true; });

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => performance.now();

// connect opens a connection; options may hold the credential of a leader.
function connect(options) {
  const redis = new Redis(PROXY, options);
  redis.on('error', (e) => console.log(worker, 'connection:', e.message));
  return redis;
}

// election asks the proxy about the election. The answer's pairs become an object.
async function election(redis, verb, ...args) {
  const pairs = await redis.call('ELECTION', verb, ELECTION, ...args);
  const answer = {};
  for (let i = 0; i < pairs.length; i += 2) answer[pairs[i]] = pairs[i + 1];
  return answer;
}

// lead works while the lease can be trusted: until a tenth before its end, counted from
// before it was asked for.
async function lead(elections, term, renewed) {
  const redis = connect({ username: `;election=${ELECTION};token=${term.token}`, password: 'none' });
  try {
    for (let order = 1; !stopping && now() < renewed + LEASE * 0.9; order++) {
      const asked = now();
      if (asked > renewed + LEASE / 3) {
        const { outcome } = await election(elections, 'RENEW', term.token);
        if (outcome === 'lost') return;
        renewed = asked;
      }
      console.log(worker, 'begins order', order);
      await sleep(500); // an order takes a moment
      await redis.xadd('journal', '*', 'worker', worker, 'number', term.number);
      console.log(worker, 'wrote order', order);
    }
  } finally {
    redis.disconnect();
  }
}

async function main() {
  const elections = connect();
  while (!stopping) {
    try {
      const asked = now();
      const term = await election(elections, 'ACQUIRE', 'OWNER', worker, 'TTL', LEASE);
      if (term.outcome !== 'acquired') {
        await sleep(LEASE / 15);
        continue;
      }
      console.log(worker, 'leads with number', term.number);
      try {
        await lead(elections, term, asked);
      } finally {
        console.log(worker, 'leads no more');
        await election(elections, 'RESIGN', term.token); // so that the next need not wait for the lease
      }
    } catch (e) {
      console.log(worker, 'failed:', e.message); // FENCED: a stale leader
    }
  }
  elections.disconnect();
}

main();
