package policy

// redisNamed holds the commands whose flags do not tell what they are.
var redisNamed = redisNames(
	redisList{RedisRead, `
		ping echo time info lolwut role lastsave wait waitaof
		auth hello quit reset select asking readonly readwrite
		multi exec discard watch unwatch
		subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe
		pubsub|channels pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub
		command command|count command|docs command|getkeys command|getkeysandflags command|info command|list
		client|id client|info client|list client|getname client|setname client|setinfo client|reply
		client|tracking client|trackinginfo client|caching client|getredir client|no-touch client|capa
		config|get slowlog|get slowlog|len commandlog|get commandlog|len
		latency|doctor latency|graph latency|histogram latency|history latency|latest
		memory|doctor memory|malloc-stats memory|stats memory|usage
		module|list acl|cat acl|genpass acl|whoami
		cluster|countkeysinslot cluster|count-failure-reports cluster|getkeysinslot cluster|info
		cluster|keyslot cluster|links cluster|myid cluster|myshardid cluster|nodes cluster|replicas
		cluster|shards cluster|slaves cluster|slots cluster|slot-stats
		script|exists script|show function|dump function|list function|stats
		object|encoding object|freq object|idletime object|refcount
		xinfo|consumers xinfo|groups xinfo|stream`},

	// PFCOUNT has the flag readonly, yet stores what it counted in the key: it changes
	// the value's bytes, is replicated and makes other sessions' WATCH fire.
	redisList{RedisWrite, `
		pfcount publish spublish
		eval evalsha fcall script|load script|flush script|kill function|kill`},

	// RediSearch gives these the flag readonly, since they have no keys.
	redisList{RedisWrite, `
		ft.dictadd ft.dictdel ft.aliasadd ft.aliasdel ft.aliasupdate ft._aliasaddifnx ft._aliasdelifx`},

	redisList{RedisLeader, `monitor`},

	// SWAPDB would move the fence to another database. SCRIPT DEBUG turns the
	// connection into another protocol. The rest have the flag admin, on today's
	// servers; they are named so that no table can make them anything else.
	redisList{RedisRefused, `
		swapdb script|debug memory|purge debug shutdown failover replicaof slaveof
		psync sync replconf save bgsave bgrewriteaof pfdebug pfselftest
		client|kill client|pause client|unpause client|unblock client|no-evict
		config|set config|rewrite config|resetstat`},
)

// redisContainers are the commands whose second word selects what they do, for servers
// that list no subcommands (Redis before 7).
var redisContainers = redisSet(`acl client cluster command commandlog config function latency
	memory module object pubsub script slowlog xgroup xinfo`)

// redisClosed are the containers whose unlisted subcommands are for nobody: they may
// name, end or reconfigure connections and the server.
var redisClosed = redisSet(`acl client cluster commandlog config latency memory module script slowlog`)
