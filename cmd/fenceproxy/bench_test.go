package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A user's own server, direct and through a fenceproxy, bound; nothing is left behind.
func TestBenchRun(t *testing.T) {
	ctx := testenv.Context(t)
	server := testenv.SharedRedis(t)
	addr := freeAddr(t)
	file := filepath.Join(t.TempDir(), "fenceproxy.yaml")
	text := fmt.Sprintf("elections: {backend: \"redis://%[1]s\"}\nlisteners:\n  - {protocol: redis, listen: %[2]s, upstream: %[1]s, control: \"redis://%[1]s\"}\n", server.Addr, addr)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, file, addr)
	b, err := openElections(ctx, config.NewSecret("redis://"+server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := b.Acquire(ctx, "bench", election.AcquireOptions{TTL: time.Hour})
	if err != nil || got.Status != election.Acquired {
		t.Fatalf("%+v, %v", got, err)
	}
	defer func() {
		if _, err := b.Resign(ctx, "bench", got.Token, election.ResignOptions{}); err != nil {
			t.Error(err)
		}
	}()
	t.Setenv(tokenEnv, got.Token.Reveal())

	dir := filepath.Join(t.TempDir(), "report")
	args := []string{"bench", "run", "--direct", "redis://" + server.Addr, "--via", "fence=redis://" + addr, "--fenced", "fence", "--election", "bench",
		"--pid", fmt.Sprintf("direct=%d", server.PID()), "--scenario", "writes,idle", "--clients", "2", "--rounds", "2", "--slice", "20ms", "--out", dir}
	r := command(t, "", args...)
	if r.code != exitOK || strings.TrimSpace(r.out) != filepath.Join(dir, "README.md") || !strings.Contains(r.err, "redis/writes/closed/2: round 2 of 2, fence: ") {
		t.Fatalf("%+v", r)
	}
	report, err := bench.LoadReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	sc := report.Scenario("redis/writes/open/2")
	if sc == nil || len(sc.Slices) != 4 || sc.Rate <= 0 || len(sc.Ratios(bench.Throughput, "fence", bench.Direct)) != 2 || len(sc.Values(bench.CPU(bench.Server), bench.Direct)) != 2 {
		t.Errorf("%+v", sc)
	}
	js, err := os.ReadFile(filepath.Join(dir, bench.ReportFile))
	if err != nil || strings.Contains(string(js)+r.err+r.out, got.Token.Reveal()) {
		t.Errorf("the token was written, or %v", err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer c.Close()
	if keys, err := c.Keys(ctx, "fenceproxy-bench:*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("%d keys are left, %v", len(keys), err)
	}

	again := filepath.Join(t.TempDir(), "again")
	if r := command(t, "", "bench", "show", dir, "--out", again); r.code != exitOK {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(again, "redis-writes-open-2.svg")); err != nil {
		t.Error(err)
	}

	// Sessions that are to be bound and are not are no measurement.
	if _, err := b.Resign(context.WithoutCancel(ctx), "bench", got.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "", args...); r.code == exitOK || !strings.Contains(r.err, "not bound") {
		t.Errorf("with a stale token: %+v", r)
	}
}

func TestBenchUsage(t *testing.T) {
	t.Setenv(tokenEnv, "")
	for name, args := range map[string][]string{
		"odd server":      {"run", "--direct", "mysql://u:hunter2@h"},
		"two wires":       {"run", "--direct", "redis://127.0.0.1:1", "--via", "p=postgres://u:hunter2@127.0.0.1:2/d"},
		"no such via":     {"run", "--direct", "redis://127.0.0.1:1", "--fenced", "p"},
		"no such pid":     {"run", "--direct", "redis://127.0.0.1:1", "--pid", "p=1"},
		"no such load":    {"run", "--direct", "redis://127.0.0.1:1", "--scenario", "copy-in"},
		"no rounds":       {"own", "--rounds", "0"},
		"no such wire":    {"peers", "--wire", "mysql"},
		"no direct given": {"run"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, "", append([]string{"bench"}, args...)...)
			if r.code != exitUsage || r.err == "" || strings.Contains(r.err, "hunter2") {
				t.Errorf("%+v", r)
			}
		})
	}
	if r := command(t, "", "bench", "check", "--reports", t.TempDir()); r.code != exitFailure || !strings.Contains(r.err, "make one first") {
		t.Errorf("a check beside no report: %+v", r)
	}
}
