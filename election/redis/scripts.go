package redis

import (
	_ "embed"

	goredis "github.com/redis/go-redis/v9"
)

// The scripts, one a call.
var (
	//go:embed scripts/prelude.lua
	prelude string
	//go:embed scripts/acquire.lua
	acquireLua string
	//go:embed scripts/renew.lua
	renewLua string
	//go:embed scripts/resign.lua
	resignLua string
	//go:embed scripts/status.lua
	statusLua string
	//go:embed scripts/validate.lua
	validateLua string
)

// flags begin every script, those that only read too. Without no-writes the server
// runs them on a primary alone: a replica answers READONLY, and so does a cluster's
// primary that has too few replicas left (min-replicas-to-write), instead of telling
// what was true before somebody else was promoted. allow-oom lets the few bytes of an
// election be renewed on a server that is full.
const flags = "#!lua flags=allow-oom\n"

type scripts struct {
	acquire, renew, resign, status, validate *goredis.Script
}

func newScripts(o Options) scripts {
	head := flags
	if o.PlainScripts {
		head = ""
	}
	return scripts{
		acquire:  goredis.NewScript(head + prelude + acquireLua),
		renew:    goredis.NewScript(head + prelude + renewLua),
		resign:   goredis.NewScript(head + prelude + resignLua),
		status:   goredis.NewScript(head + statusLua),
		validate: goredis.NewScript(head + validateLua),
	}
}
