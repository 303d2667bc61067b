package redisfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// The rules that we name suffice on each node, and whatever is missing of them is noticed
// before it is needed.
func TestClusterRights(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, testenv.RedisServer, false)
	o := newOperator(t, c)
	f, err := redisfence.OpenCluster(t.Context(), strings.Replace(clusterURL(c), "://", "://ctl:s3cr3t@", 1), redisfence.ClusterOptions{})
	o.must(err)
	defer f.Close()
	setUser := func(more ...any) {
		for _, p := range c.Primaries {
			args := []any{"ACL", "SETUSER", "ctl", "reset", "on", ">s3cr3t"}
			for rule := range strings.FieldsSeq(redisfence.ClusterRules) {
				args = append(args, rule)
			}
			o.must(client(t, p.Addr).Do(t.Context(), append(args, more...)...).Err())
		}
	}
	for _, without := range []string{"-get", "-set", "-eval", "-client|list", "-client|kill", "-cluster|nodes", "-cluster|myid",
		"-smembers", "-smismember", "-sadd", "-srem", "-asking", "resetkeys"} {
		setUser(without)
		fatal := false
		for _, p := range f.Check(t.Context()) {
			fatal = fatal || p.Fatal
			if strings.Contains(p.String(), "s3cr3t") {
				t.Errorf("password in %v", p)
			}
		}
		if !fatal {
			t.Errorf("%s: check finds nothing", without)
		}
	}
	x := term(t, 7)
	setUser("-client|list")
	if err := takeOverOnce(t.Context(), f, x); !errors.Is(err, redisfence.ErrRights) {
		t.Errorf("without CLIENT LIST: %v", err)
	}
	setUser()
	if ps := f.Check(t.Context()); len(ps) > 0 {
		t.Errorf("with the rules that we name: %v", ps)
	}
	r := leads(t, f, x)
	old := mustBind(t, f, c.Primaries[0].Addr, x, r)
	o.move(rediscluster.Slot([]byte(redisfence.Key(x.Election))))
	leads(t, f, after(x))
	if old.Write(t.Context()) == nil {
		t.Error("alive")
	}
}

// Neither a server that is out of memory nor a script that does not end holds up a takeover
// or, in the end, a bind.
func TestClusterFullAndBusy(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, testenv.ValkeyServer, false, "--busy-reply-threshold", "10", "--maxmemory-policy", "noeviction")
	o := newOperator(t, c)
	f := openCluster(t, c)
	x := homedAt(t, o, c.Primaries[0], 5)
	for _, p := range c.Primaries {
		o.must(client(t, p.Addr).ConfigSet(t.Context(), "maxmemory", "1").Err())
	}
	r := leads(t, f, x)
	conn, err := bindAt(t, f, c.Primaries[1].Addr, x, r)
	o.must(err)
	if err := conn.c.Set(t.Context(), "{"+rediscluster.Tag(o.last(c.Primaries[1]))+"}", "x", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("memory is not exhausted: %v", err)
	}
	for _, p := range c.Primaries {
		o.must(client(t, p.Addr).ConfigSet(t.Context(), "maxmemory", "0").Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, p := range c.Primaries[:2] {
		keepBusy(t, p, "EVAL_RO", forever, 0)
	}
	if err := takeOver(ctx, f, after(x)); err != nil {
		t.Fatal(err)
	}
	if conn.Write(t.Context()) == nil {
		t.Error("alive")
	}
}
