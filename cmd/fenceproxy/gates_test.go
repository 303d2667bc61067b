package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

const gatesConfig = `elections: {backend: 'redis://%[1]s'}
admin: {listen: %[2]s}
gates:
  - {name: orders, election: '%[4]s-{partition}', permit: 1s}
listeners:
  - {protocol: redis, listen: '%[3]s', upstream: '%[1]s', control: 'redis://%[1]s', gate_commands: [orders]}
`

// A partition that one consumer has by FENCE GATE is another's by HTTP once it is lost.
func TestServeGates(t *testing.T) {
	ctx := testenv.Context(t)
	server, name := testenv.SharedRedis(t).Addr, testenv.Name(t, "gate")
	addr, adminAddr := freeAddr(t), freeAddr(t)
	proxy := serve(t, configFile(t, gatesConfig, server, adminAddr, addr, name), addr, "listener=admin")
	b, err := open.Backend(ctx, "redis://"+server, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	lead := func(owner string) election.AcquireResult {
		r, err := b.Acquire(ctx, name+"-7", election.AcquireOptions{Owner: owner})
		if err != nil || r.Status != election.Acquired {
			t.Fatalf("%+v, %v", r, err)
		}
		return r
	}
	connect := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 3, PoolSize: 1, MaxRetries: -1, DisableIdentity: true, ReadTimeout: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c *redis.Client, words string) (map[any]any, error) {
		var args []any
		for w := range strings.FieldsSeq(words) {
			args = append(args, w)
		}
		v, err := c.Do(ctx, args...).Result()
		m, _ := v.(map[any]any)
		return m, err
	}
	refused := func(err error, words ...string) {
		t.Helper()
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Fatalf("%v: %q is missing", err, w)
			}
		}
	}

	one, two := connect(), connect()
	first := lead("worker-1")
	m, err := ask(one, "FENCE GATE BIND orders 7 "+first.Token.Reveal())
	if err != nil || m["number"] != first.Number || m["owner"] != "worker-1" || m["trusted_ms"].(int64) < 500 {
		t.Fatal(m, err)
	}
	_, err = ask(two, "FENCE GATE BIND orders 7 "+first.Token.Reveal())
	refused(err, "OCCUPIED", "worker-1", fmt.Sprint(first.Number))
	_, err = ask(two, "FENCE GATE KEEP orders 7")
	refused(err, "UNKNOWNBINDING")
	_, err = ask(two, "FENCE GATE BIND others 7 "+first.Token.Reveal())
	refused(err, "UNKNOWNGATE")
	if m, err = ask(one, "FENCE GATE KEEP orders 7 TIMEOUT 20"); err != nil || m["trusted_ms"].(int64) < 500 {
		t.Fatal(m, err)
	}
	if l, err := one.Do(ctx, "FENCE", "GATE", "LIST").Slice(); err != nil || len(l) != 1 {
		t.Fatal(l, err)
	}

	lost := make(chan error, 1)
	go func() { // blocks
		_, err := ask(one, "FENCE GATE KEEP orders 7")
		lost <- err
	}()
	if _, err := b.Resign(ctx, name+"-7", first.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	second := lead("worker-2")
	refused(<-lost, "STALE", "worker-2")
	if _, err := ask(one, "FENCE GATE RELEASE orders 7"); err != nil {
		t.Fatal(err)
	}
	status, answer := post(ctx, t, "http://"+adminAddr+"/v1/gates/orders/partitions/7/bind", map[string]any{"token": second.Token.Reveal()})
	if status != http.StatusOK || answer["owner"] != "worker-2" {
		t.Fatal(status, answer)
	}
	status, answer = post(ctx, t, "http://"+adminAddr+"/v1/gates/orders/partitions/7/bind", map[string]any{"token": first.Token.Reveal()})
	if e, _ := answer["error"].(map[string]any); status != http.StatusConflict || e["code"] != "stale" {
		t.Fatal(status, answer)
	}
	// The HTTP consumer never says a word again: its grace is over some time.
	testenv.Eventually(t, "the partition is free again", func() bool {
		_, err = ask(one, "FENCE GATE BIND orders 7 "+second.Token.Reveal()+" WAIT 100")
		return err == nil
	})
	// A connection that closes gives up its binding, when what it was told is over.
	_ = one.Close()
	testenv.Eventually(t, "the partition of a closed connection is free", func() bool {
		_, err = ask(two, "FENCE GATE BIND orders 7 "+second.Token.Reveal()+" WAIT 100")
		return err == nil
	})
	// After RESET the next one waits.
	if err := two.Do(ctx, "RESET").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err = ask(two, "FENCE GATE BIND orders 7 "+second.Token.Reveal()); err != nil {
		t.Fatal(err)
	}
	// A stream does not hold the end up.
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+adminAddr+"/v1/elections/"+name+"-7/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	began := time.Now()
	_ = proxy.Process.Signal(syscall.SIGTERM)
	if code := proxy.ended(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it ended after %v", took)
	}
}

// post is the status and the body of an answer.
func post(ctx context.Context, t *testing.T, url string, body any) (int, map[string]any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer := make(map[string]any)
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

const boundConfig = `elections: {backend: 'redis://%[1]s'}
listeners:
  - {protocol: postgres, listen: '%[2]s', upstream: '%[3]s', control: '%[4]s', election: '%[6]s', bind: required, exclusive: session}
  - {protocol: redis, listen: '%[5]s', upstream: '%[1]s', control: 'redis://%[1]s', election: '%[6]s', bind: required, exclusive: client}
`

// Listeners that serve bound sessions alone, one at a time or those of one client.
func TestServeBoundSessionsAlone(t *testing.T) {
	ctx := testenv.Context(t)
	server, db, name := testenv.SharedRedis(t).Addr, install(t), testenv.Name(t, "bound")
	pgAddr, addr := freeAddr(t), freeAddr(t)
	proxy := serve(t, configFile(t, boundConfig, server, pgAddr, db.Addr, db.DSN("fenceproxy", "postgres"), addr, name), addr)
	b, err := open.Backend(ctx, "redis://"+server, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	held, err := b.Acquire(ctx, name, election.AcquireOptions{Owner: "worker-1", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	connect := func(token string) (*pgx.Conn, error) {
		return pgx.Connect(ctx, "postgres://app@"+pgAddr+"/postgres?sslmode=disable"+token)
	}
	refused := func(err error, state string) {
		t.Helper()
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != state || e.Severity != "FATAL" {
			t.Fatalf("got %v, want %s", err, state)
		}
	}
	_, err = connect("")
	refused(err, "28000")
	c, err := connect("&fence.token=" + held.Token.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "INSERT INTO things VALUES ('bound')"); err != nil {
		t.Fatal(err)
	}
	_, err = connect("&fence.token=" + held.Token.Reveal())
	refused(err, "FP011")

	r := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	defer r.Close()
	if err := r.Get(ctx, name).Err(); err == nil || !strings.HasPrefix(err.Error(), "FENCED this listener serves bound sessions alone") {
		t.Fatal(err)
	}
	if log := proxy.log.String(); strings.Contains(log, "partition") || !strings.Contains(log, "exclusive binding begins") {
		t.Error(log)
	}
}
