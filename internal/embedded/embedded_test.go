package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func start(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// dial returns a client with one connection.
func dial(t *testing.T, s *Server) *redis.Conn {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	conn := c.Conn()
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestConnectionsHaveNamesAndAreListed(t *testing.T) {
	s := start(t)
	a, b := dial(t, s), dial(t, s)
	ctx := t.Context()
	if err := a.ClientSetName(ctx, "first").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := b.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "CLIENT", "SETNAME", "second")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := a.Do(ctx, "CLIENT", "LIST").Text()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"id=1 addr=127.0.0.1:", " name=first ", "id=2 ", " name=second "} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	if id, err := b.ClientID(ctx).Result(); err != nil || id != 2 {
		t.Errorf("id %d, %v", id, err)
	}
}

// TestNothingRunsAfterAKillIsAnswered floods with writes and kills the writers: what
// the key holds when the kill is answered, it holds for ever.
func TestNothingRunsAfterAKillIsAnswered(t *testing.T) {
	s := start(t)
	control := dial(t, s)
	ctx := t.Context()
	for round := range 8 {
		key := fmt.Sprintf("key%d", round)
		var wg sync.WaitGroup
		var ids [4]int64
		var ready sync.WaitGroup
		var wrote atomic.Int64
		for i := range ids {
			ready.Add(1)
			wg.Go(func() {
				conn := dial(t, s)
				var err error
				if ids[i], err = conn.ClientID(ctx).Result(); err != nil {
					t.Error(err)
				}
				ready.Done()
				for {
					_, err := conn.Pipelined(ctx, func(p redis.Pipeliner) error {
						for range 200 {
							p.Incr(ctx, key)
						}
						return nil
					})
					if err != nil {
						return
					}
					wrote.Add(1)
				}
			})
		}
		ready.Wait()
		for wrote.Load() < 4 {
			if ctx.Err() != nil {
				t.Fatal("no writes")
			}
		}
		for _, id := range ids {
			if n, err := control.ClientKillByFilter(ctx, "ID", fmt.Sprint(id)).Result(); err != nil || n > 1 {
				t.Fatal(n, err)
			}
		}
		then := control.Get(ctx, key).Val()
		wg.Wait()
		if now := control.Get(ctx, key).Val(); now != then {
			t.Fatalf("round %d: %s at the kill, %s later", round, then, now)
		}
	}
}

func TestAKilledBlockedCommandNeverPops(t *testing.T) {
	s := start(t)
	control, blocked := dial(t, s), dial(t, s)
	ctx := t.Context()
	id := blocked.ClientID(ctx).Val()
	ended := make(chan error, 1)
	go func() { ended <- blocked.BLMove(ctx, "from", "to", "LEFT", "RIGHT", 0).Err() }()
	if n, err := control.ClientKillByFilter(ctx, "ID", fmt.Sprint(id)).Result(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := control.RPush(ctx, "from", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the blocked command succeeded")
	}
	if n := control.LLen(ctx, "from").Val(); n != 1 {
		t.Errorf("%d left", n)
	}
}

func TestKeysRunOutByThemselves(t *testing.T) {
	s := start(t)
	c := dial(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Set(ctx, "k", "v", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for c.Get(ctx, "k").Err() == nil {
	}
	if err := c.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
}

func TestCommandTable(t *testing.T) {
	s := start(t)
	c := dial(t, s)
	infos, err := c.Do(t.Context(), "COMMAND", "INFO", "GET", "set", "nonesuch").Slice()
	if err != nil || len(infos) != 3 {
		t.Fatal(infos, err)
	}
	if get, ok := infos[0].([]any); !ok || get[0] != "get" {
		t.Error(infos[0])
	}
	if infos[2] != nil {
		t.Error(infos[2])
	}
	if err := c.FlushAll(t.Context()).Err(); err == nil {
		t.Error("FLUSHALL was let through")
	}
}

// A bind asks for the role with HELLO, which changes nothing.
func TestHelloSaysTheRole(t *testing.T) {
	s := start(t)
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DisableIdentity: true, Protocol: protocol})
		defer c.Close()
		conn := c.Conn()
		defer conn.Close()
		if err := conn.ClientSetName(t.Context(), "first").Err(); err != nil {
			t.Fatal(err)
		}
		got, err := conn.Do(t.Context(), "HELLO").Result()
		if err != nil {
			t.Fatal(err)
		}
		fields := fmt.Sprint(got)
		if _, isMap := got.(map[any]any); isMap != (protocol == 3) {
			t.Errorf("protocol %d: %T", protocol, got)
		}
		if !strings.Contains(fields, "role:master") && !strings.Contains(fields, "role master") {
			t.Errorf("no role: %v", got)
		}
		if name := conn.ClientGetName(t.Context()).Val(); name != "first" {
			t.Errorf("the name is %q", name)
		}
	}
}
