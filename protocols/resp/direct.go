package resp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/guard/peer"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
)

// Errors of Direct, for errors.Is.
var (
	// ErrPooler: somebody else than the server listens on the Unix socket.
	ErrPooler = errors.New("somebody stands between the Unix socket and the server")
	// ErrUnproven: it cannot be told who listens on the Unix socket.
	ErrUnproven = errors.New("it cannot be proven that the Unix socket leads to the server itself: set upstream to the server's TCP address")
)

// Direct proves that a connection by Unix socket leads to the very server that control
// does, with nobody in between.
//
// INVARIANT: to a server all that comes by its Unix socket looks alike, so that CLIENT
// INFO does not tell a pooler, whose connections other sessions use too. But who listens
// is known to the kernel, and the server says its own process id on the control
// connection: when they are one, nobody stands in between. Process ids of another pid
// namespace tell nothing: the process of that number here must be of no inner one, and must
// have started when the server did.
func Direct(ctx context.Context, upstream net.Conn, control Control) error {
	listener := peer.Listener(upstream)
	if listener <= 0 {
		return fmt.Errorf("%w (who listens on it is not known: it is in another pid namespace, or this is not Linux)", ErrUnproven)
	}
	info, err := control.Do(ctx, "INFO", "server").Text()
	if err != nil {
		return fmt.Errorf("asking the server for its process id: %w", err)
	}
	said := redisfence.ParseInfo(info)
	pid, err := strconv.Atoi(said["process_id"])
	if err != nil {
		return fmt.Errorf("%w (the server does not say its process id)", ErrUnproven)
	}
	up, err := strconv.ParseInt(said["uptime_in_seconds"], 10, 64)
	if err != nil {
		return fmt.Errorf("%w (the server does not say since when it runs)", ErrUnproven)
	}
	started := time.Now().Add(-time.Duration(up) * time.Second)
	if pid != listener {
		return fmt.Errorf("%w: process %d listens on it, and the server is process %d", ErrPooler, listener, pid)
	}
	p, err := peer.Look(pid)
	if err != nil {
		return fmt.Errorf("%w (process %d: %w)", ErrUnproven, pid, err)
	}
	if d := p.Started.Sub(started); d < -peer.StartSlack || d > peer.StartSlack {
		return fmt.Errorf("%w (process %d did not start when the server says that it did)", ErrUnproven, pid)
	}
	return nil
}
