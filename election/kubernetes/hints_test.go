package kubernetes

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Renewals, and what befalls other Leases, give no hint. A Lease that is deleted does.
func TestWatches(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	b, other := s.open(t, s.config), s.open(t, s.config)
	g := win(t, b, "e", election.AcquireOptions{})
	ctx, cancel := context.WithCancel(testenv.Context(t))
	defer cancel()
	hints, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- other.Hints(ctx, "e", func() { hints <- struct{}{} }) }()
	await := func(what string) {
		t.Helper()
		select {
		case <-hints:
		case err := <-ended:
			t.Fatalf("%s: the hints ended: %v", what, err)
		}
	}
	await("begin")
	for range 5 {
		renew(t, b, "e", g.Token, election.Renewed)
	}
	h := win(t, b, "E", election.AcquireOptions{})
	for id, token := range map[string]election.Token{"E": h.Token, "e": g.Token} {
		if r, err := b.Resign(ctx, id, token, election.ResignOptions{}); err != nil || r.Status != election.Released {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	await("release")
	s.lose(t, "e")
	await("deletion")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || len(hints) > 0 {
		t.Errorf("%v; %d more hints", err, len(hints))
	}
}

// Who may not watch is told so, and may try again; all else goes on without.
func TestWithoutTheRightToWatch(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	b := s.open(t, s.as("nobody"))
	err := b.Hints(t.Context(), "e", func() { t.Error("a hint") })
	if !errors.Is(err, election.ErrUnavailable) || election.Permanent(err) || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "needs watch of leases") {
		t.Errorf("%v", err)
	}
}
