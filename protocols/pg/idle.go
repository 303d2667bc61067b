package pg

import (
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// A sweeper ends sessions that are idle for too long, in the server's own words, and those
// of clients and servers that a network has cut off.
type sweeper = protocols.Sweeper[*session, *stillness]

// A stillness is since when a session has not moved.
type stillness struct {
	moves            uint64
	since            time.Time
	client, upstream protocols.OutOfReach
}

// sweepEvery is how often sessions are looked at: a time-out ends a session at most a
// tenth late, or a second.
func sweepEvery(c *Config) time.Duration {
	every := time.Second
	for _, d := range []time.Duration{c.IdleTimeout, c.IdleInTransactionTimeout} {
		if d > 0 {
			every = min(every, max(d/10, time.Millisecond))
		}
	}
	return every
}

// sweep ends the session if it has been idle for too long, or a side is out of reach.
func sweep(now time.Time, s *session, still *stillness) {
	if still.client.Look(s.client, s.cfg.KeepAlive, now) {
		s.log.Info("the client is out of reach")
		// As if it had left: the server ends by itself, and is seen to.
		_ = s.client.SetDeadline(time.Unix(1, 0))
	}
	if still.upstream.Look(s.upstream, s.cfg.KeepAlive, now) {
		s.log.Warn("the server is out of reach", "upstream", s.to.addr)
		_ = s.upstream.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moves != still.moves || s.writing.Load() || !s.core.idles() {
		still.moves, still.since = s.moves, now
		return
	}
	limit, last := s.cfg.IdleTimeout, report{severity: "FATAL", code: "57P05", message: "terminating connection due to idle-session timeout"}
	if s.core.status != 'I' {
		limit, last = s.cfg.IdleInTransactionTimeout, report{severity: "FATAL", code: "25P03", message: "terminating connection due to idle-in-transaction timeout"}
	}
	if limit > 0 && now.Sub(still.since) >= limit {
		s.log.Info("session was idle for too long", "timeout", limit)
		s.core.end(last)
		s.wake()
	}
}
