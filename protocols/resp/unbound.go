package resp

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fenceproxy/fenceproxy/guard"
)

// logNotBound logs why a bind failed, once for a bind. One that the session makes by itself
// before each write is told again only when its reason has changed.
//
// INVARIANT: no token is logged: Refusal.ForLog leaves out an election's name that nobody
// vouches for.
func (x *session) logNotBound() {
	x.mu.Lock()
	r, again := x.core.notBound, x.core.retried
	x.core.notBound = nil
	if r == nil {
		x.mu.Unlock()
		return
	}
	level := levelOf(r, x.core.replica)
	id, text := r.ForLog(x.server.c.names(r.Election))
	told := again && text == x.logged
	x.logged = text
	x.mu.Unlock()
	if !told {
		x.server.c.Log.Log(context.Background(), level, "session not bound", "client", x.client.RemoteAddr().String(), "election", id, "refusal", text)
	}
}

// levelOf is Warn for what an operator must mend. A replica of a cluster is none of that.
func levelOf(r *guard.Refusal, replica bool) slog.Level {
	if replica || errors.Is(r.Err, context.Canceled) {
		return slog.LevelInfo
	}
	switch r.Reason {
	case guard.BackendUnknown, guard.FenceUnavailable, guard.FenceRegressed, guard.FenceConflict, guard.Unseverable, guard.Unbindable:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
