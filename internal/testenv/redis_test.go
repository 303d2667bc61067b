package testenv

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

func TestEachRedis(t *testing.T) {
	EachRedis(t, func(t *testing.T, v servers.RedisVersion, p *servers.Process) {
		if !strings.Contains(p.Version, " v="+v.Major+".") || SharedRedisVersion(t, v) != p {
			t.Errorf("%s is %q", v.Name, p.Version)
		}
	})
}
