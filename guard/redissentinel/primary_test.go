package redissentinel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func open(t *testing.T, s *servers.RedisSentinel, prepare func(ctx context.Context, addr string) error) *Primary {
	p := New(Options{Sentinels: strings.Split(s.Addrs(), ","), Master: servers.SentinelMaster, Every: 10 * time.Millisecond, Prepare: prepare})
	t.Cleanup(p.Close)
	return p
}

// Nobody gets to a primary that was not prepared; once it was, all do.
func TestPrepare(t *testing.T) {
	s := testenv.RedisSentinel(t, "redis-server")
	may := make(chan error)
	p := open(t, s, func(ctx context.Context, addr string) error {
		if addr != s.Primary.Addr {
			t.Errorf("%s is no primary", addr)
		}
		select {
		case err := <-may:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	answer := func(err error) {
		t.Helper()
		select {
		case may <- err:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody prepares")
		}
	}
	refused := errors.New("not yet")
	answer(refused)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Dial(short); !errors.Is(err, ErrUnprepared) {
		t.Errorf("got %v", err)
	}
	answer(refused)
	answer(nil)
	for range 2 {
		c, err := p.Dial(t.Context())
		if err != nil || c.Server != s.Primary.Addr {
			t.Fatal(c, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	list, err := p.Replicas(t.Context())
	if err != nil || len(list) != 1 || list[0] != (Node{Addr: s.Replica.Addr}) {
		t.Errorf("replicas %v, %v", list, err)
	}
	open, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := open.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives Close")
	}
	if _, err := p.Dial(t.Context()); err == nil {
		t.Error("connected after Close")
	}
}

func TestNobodyNamesAPrimary(t *testing.T) {
	p := New(Options{Sentinels: []string{"127.0.0.1:1"}, Master: "main"})
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Addr(ctx); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := p.Replicas(t.Context()); err == nil {
		t.Error("replicas of nobody")
	}
}

// Sentinels that were cut off keep their last word; it is not believed against a newer one.
func TestWhoIsBelieved(t *testing.T) {
	a, b, c := reign{"a:1", 1}, reign{"b:1", 2}, reign{"a:1", 3}
	for _, x := range []struct {
		told    []reign
		now     reign
		want    reign
		follows bool
	}{
		{[]reign{{}, {}, {}}, b, reign{}, false},
		{[]reign{a, {}, {}}, reign{}, a, true},
		{[]reign{a, b, a}, a, b, true},
		{[]reign{a, {}, {}}, b, a, false},
		{[]reign{b, {}, {}}, b, b, true},
		{[]reign{{}, a, a}, b, a, true},
		{[]reign{b, c, a}, b, c, true},
	} {
		got, answers := newestOf(x.told)
		if got != x.want || got.follows(x.now, answers, len(x.told)) != x.follows {
			t.Errorf("%v after %v: %v, %v", x.told, x.now, got, got.follows(x.now, answers, len(x.told)))
		}
	}
}
