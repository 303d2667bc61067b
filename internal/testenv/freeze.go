package testenv

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// Freeze stops a server with SIGSTOP and returns what lets it go on.
func Freeze(t testing.TB, p *servers.Process) (thaw func()) {
	t.Helper()
	if err := p.Freeze(); err != nil {
		t.Error(err)
	}
	return func() {
		if err := p.Thaw(); err != nil {
			t.Error(err)
		}
	}
}
