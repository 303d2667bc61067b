package servers

import (
	"context"
	"fmt"
)

// The names of the programs.
const (
	redisServer  = "redis-server"
	valkeyServer = "valkey-server"
)

// StartValkey starts a Valkey server without persistence.
func StartValkey(ctx context.Context, o RedisOptions) (*Process, error) {
	o.Program = valkeyServer
	if _, err := lookup(o.Bin, o.Program); err != nil {
		return nil, fmt.Errorf("%w (apt-get install valkey-server, on Debian 12 from bookworm-backports; or make deps)", err)
	}
	return StartRedis(ctx, o)
}
