package examples

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestNode(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "node", "fenceproxy.yaml")
	// The modules are those of the tests of clients.
	const clients = "../../respclients/testdata/node-redis"
	version := regexp.MustCompile(`"ioredis": "[^"]+"`)
	if here, there := version.FindString(s.read(t, "package.json")), version.FindString(s.read(t, filepath.Join("../../integration/examples/testdata", clients, "package.json"))); here != there {
		t.Errorf("package.json has %s, the tests have %s", here, there)
	}
	bin, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v (make deps installs it)", err)
	}
	env := []string{"NODE_PATH=" + testenv.NodeModules(t, clients), "PROXY=redis://" + s.at("127.0.0.1:6380"), leaseSeconds}
	takeover{
		start: func(name string) *worker {
			return s.start(t, ctx, name, "node worker.js "+name, env, bin, "worker.js", name)
		},
		refused: "failed: FENCED stale leader refused",
	}.run(t)
	inOrder(t, s.stream(t, ctx, "journal"), "aba")
	vacant(t, ctx, "redis://"+s.at(redisAddr), "feeds")
}

// redis is a connection to the example's Redis, beside the proxy.
func (s *stage) redis(t *testing.T) *redis.Client {
	t.Helper()
	r := redis.NewClient(&redis.Options{Addr: s.at(redisAddr)})
	t.Cleanup(func() { r.Close() })
	return r
}

// stream is what the leaders of an example wrote to a stream, in order.
func (s *stage) stream(t *testing.T, ctx context.Context, key string) (all []entry) {
	t.Helper()
	messages, err := s.redis(t).XRange(ctx, key, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range messages {
		text := func(field string) string { v, _ := m.Values[field].(string); return v }
		n, err := strconv.ParseInt(text("number"), 10, 64)
		if err != nil {
			t.Errorf("%v: %v", m, err)
		}
		if order := text("order"); order != "" && seen[order] {
			t.Errorf("%s holds order %s twice", key, order)
		} else {
			seen[order] = true
		}
		all = append(all, entry{text("worker"), n})
	}
	return all
}

var leaseSeconds = "LEASE=" + strings.TrimSuffix(lease, "s")
