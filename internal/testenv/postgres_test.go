package testenv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

func TestEveryPostgresVersionStarts(t *testing.T) {
	EachPostgres(t, func(t *testing.T, v Version, p *servers.Process) {
		if !strings.Contains(p.Version, fmt.Sprintf(" %d.", v.Major)) {
			t.Errorf("asked for %d, got %s", v.Major, p.Version)
		}
		if SharedPostgresVersion(t, v.Major) != p {
			t.Error("the shared server was started twice")
		}
	})
}
