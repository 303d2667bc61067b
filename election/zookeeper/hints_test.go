package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Renewals give no hint, and who comes and goes leaves one watch at most.
func TestWatches(t *testing.T) {
	z := testenv.SharedZooKeeper(t)
	b := opened(t, z.Addrs(), "/watches", Options{})
	ctx := testenv.Context(t)
	g, err := b.Acquire(ctx, "e", election.AcquireOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.watch(ctx, b.path("e")+"/lease")
	if err != nil || !first.exists {
		t.Fatalf("%+v, %v", first, err)
	}
	for range 5 {
		of, cancel := context.WithCancel(ctx)
		if err := b.Hints(of, "e", cancel); !errors.Is(err, context.Canceled) { // at the begin
			t.Errorf("%v", err)
		}
	}
	of, cancel := context.WithCancel(ctx)
	hints := 0
	err = b.Hints(of, "e", func() {
		switch hints++; hints {
		case 1: // it began
			go func() {
				for range 5 {
					if _, err := b.Renew(ctx, "e", g.Token); err != nil {
						t.Error(err)
					}
				}
				if now, err := s.watch(ctx, b.path("e")+"/lease"); err != nil || now != first {
					t.Errorf("another watch: %+v, %v", now, err)
				}
				_, _ = b.Resign(ctx, "e", g.Token, election.ResignOptions{})
			}()
		case 2:
			cancel()
		}
	})
	if hints != 2 {
		t.Errorf("%d hints; %v", hints, err)
	}
	if n := len(s.watches); n != 1 {
		t.Errorf("%d watches", n)
	}
}
