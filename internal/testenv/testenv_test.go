package testenv

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

func TestMain(m *testing.M) { Main(m) }

func TestServersStartAndStop(t *testing.T) {
	if p := SharedRedis(t); p.Version == "" {
		t.Error("no version")
	}
	if p := SharedPostgres(t); p.Version == "" {
		t.Error("no version")
	}
	Redis(t)
	Postgres(t, servers.PostgresOptions{})
}
