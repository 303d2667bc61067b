package gates

import (
	"context"
	"net"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/admin"
	"github.com/fenceproxy/fenceproxy/internal/gateapi"
)

// serveGate is a gate in this process, for the counterpart of the race.
func serveGate(p plan) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := open.Backend(ctx, p.Elections, open.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	if p.Unleased {
		b = unleased{b}
	}
	g, err := guard.NewGate(b, guard.GateConfig{Name: "orders", Election: p.Prefix + "-{partition}", PermitFor: permit, ValidateEvery: validateEvery})
	if err != nil {
		return err
	}
	defer g.Close()
	api := gateapi.New([]*guard.Gate{g}, gateapi.Config{})
	defer api.Close()
	s := admin.New(admin.Config{})
	api.Register(s)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.Addr)
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// unleased grants the gates' lease to whoever asks.
type unleased struct{ election.Backend }

func (u unleased) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	if strings.HasSuffix(id, ":gate") {
		return election.AcquireResult{Status: election.Acquired, Token: o.Token, Number: 1, Owner: o.Owner, Remaining: o.TTL}, nil
	}
	return u.Backend.Acquire(ctx, id, o)
}

func (u unleased) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	if strings.HasSuffix(id, ":gate") {
		return election.RenewResult{Status: election.Renewed, Number: 1, Remaining: permit}, nil
	}
	return u.Backend.Renew(ctx, id, t)
}
