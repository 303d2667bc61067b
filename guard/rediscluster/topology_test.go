package rediscluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestTopologyFollowsTheCluster(t *testing.T) {
	for _, program := range []string{testenv.RedisServer, testenv.ValkeyServer} {
		t.Run(program, func(t *testing.T) {
			ctx := testenv.Context(t)
			nodes := testenv.RedisCluster(t, program)
			top := rediscluster.New(rediscluster.Options{Seeds: []string{nodes[1].Addr}, Every: time.Hour})
			defer top.Close()
			if top.View() != nil {
				t.Error("a view out of nothing")
			}
			if err := top.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			first := top.View()
			if len(first.Nodes()) != 3 {
				t.Fatalf("%+v", first.Nodes())
			}
			for _, n := range nodes {
				got, ok := first.ByAddr(n.Addr)
				if !ok || !got.Primary || got.Failed || !got.Answered || len(got.Slots) != 1 {
					t.Errorf("%s: %+v", n.Addr, got)
				}
				for _, r := range got.Slots {
					key := "{" + rediscluster.Tag(r.Last) + "}"
					if err := top.Client(n.Addr).Set(ctx, key, "x", 0).Err(); err != nil {
						t.Errorf("%s: %v", n.Addr, err)
					}
				}
			}
			// Nothing new is no change.
			changed := top.Changed()
			if err := top.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
				t.Error("changed")
			default:
			}

			runCtx, stop := context.WithCancel(ctx)
			ran := make(chan error, 1)
			go func() { ran <- top.Run(runCtx) }()
			owner, _ := first.Owner(0)
			other, _ := first.Owner(rediscluster.Slots - 1)
			for _, n := range nodes {
				c := redis.NewClient(&redis.Options{Addr: n.Addr})
				if err := c.Do(ctx, "CLUSTER", "SETSLOT", 0, "NODE", other.ID).Err(); err != nil {
					t.Error(err)
				}
				_ = c.Close()
			}
			testenv.Eventually(t, "the slot has another owner", func() bool {
				top.Suspect()
				n, _ := top.View().Owner(0)
				return n.ID == other.ID
			})
			<-changed
			nodes[0].Kill()
			testenv.Eventually(t, "the node has failed", func() bool {
				top.Suspect()
				n, ok := top.View().ByAddr(nodes[0].Addr)
				return ok && n.Failed && !n.Answered
			})
			if n, _ := first.Owner(0); n.ID != owner.ID {
				t.Error("an old view changed")
			}
			stop()
			if err := <-ran; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// What answers at an address is believed only if it is the node that was there.
func TestAddressOfAnotherClusterIsNotBelieved(t *testing.T) {
	ctx := testenv.Context(t)
	ours, other := testenv.Redis(t, "--cluster-enabled", "yes"), testenv.Redis(t, "--cluster-enabled", "yes")
	id, err := servers.RedisNodeID(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	top := rediscluster.New(rediscluster.Options{Seeds: []string{ours.Addr}})
	defer top.Close()
	for _, c := range []struct {
		id   string
		want int
	}{{strings.Repeat("0", 40), 1}, {id, 2}} {
		if err := top.RefreshWith(ctx, rediscluster.Node{ID: c.id, Addr: other.Addr}); err != nil {
			t.Fatal(err)
		}
		if got := top.View().Nodes(); len(got) != c.want {
			t.Errorf("%s: %+v", c.id, got)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	top := rediscluster.New(rediscluster.Options{Seeds: []string{"127.0.0.1:1"}})
	defer top.Close()
	if err := top.Refresh(t.Context()); !errors.Is(err, rediscluster.ErrNoNode) {
		t.Error(err)
	}
}
