package redis

import (
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openAt(t testing.TB, addr string) *Backend {
	t.Helper()
	b, err := OpenURL("redis://"+addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opened is openAt for the length of the test.
func opened(t testing.TB, addr string) *Backend {
	t.Helper()
	b := openAt(t, addr)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// plain is a client for looking at the server.
func plain(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func lose(t testing.TB, c goredis.UniversalClient, id string) {
	t.Helper()
	k := "fenceproxy:{" + id + "}:"
	if err := c.Del(t.Context(), k+"lease", k+"number", k+"holdoff").Err(); err != nil {
		t.Error(err)
	}
}

// dump returns every key of the server with its value, as text.
func dump(t testing.TB, c goredis.UniversalClient) string {
	t.Helper()
	var out strings.Builder
	ctx := t.Context()
	keys, err := c.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		var v any
		switch typ := c.Type(ctx, k).Val(); typ {
		case "string":
			v = c.Get(ctx, k).Val()
		case "none":
		default:
			t.Fatalf("key %q has type %q", k, typ)
		}
		fmt.Fprintf(&out, "%q %q\n", k, v)
	}
	return out.String()
}

func TestConformance(t *testing.T) {
	p := testenv.SharedRedis(t)
	c := plain(t, p.Addr)
	electiontest.Run(t, electiontest.Harness{
		Open:    func(t testing.TB) election.Backend { return openAt(t, p.Addr) },
		HoldOff: true, Hints: true,
		Lose:   func(t testing.TB, _ election.Backend, id string) { lose(t, c, id) },
		Dump:   func(t testing.TB, _ election.Backend) string { return dump(t, c) },
		Server: p.Addr,
		OpenAt: func(t testing.TB, addr string) election.Backend { return openAt(t, addr) },
	})
}
