package resp

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// endIdle ends, every so often until ctx is done, the sessions that are idle for too long.
// The server says which those are: it knows which wait for it, and for which it waits.
func (s *Server) endIdle(ctx context.Context) {
	limit := s.c.IdleTimeout
	t := time.NewTicker(max(limit/10, 100*time.Millisecond))
	defer t.Stop()
	for said := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		noteMoves(&s.sweeper)
		asking, cancel := context.WithTimeout(ctx, s.c.DialTimeout)
		list, err := s.c.Control.Do(asking, "CLIENT", "LIST").Text()
		cancel()
		if err != nil {
			if ctx.Err() == nil && !said {
				s.c.Log.Warn("cannot ask the server which sessions are idle", "error", err)
			}
			said = true
			continue
		}
		said = false
		endIdle(&s.sweeper, idleClients(list, limit), limit)
	}
}

// idleClients returns where the connections in a CLIENT LIST come from that have been idle
// for longer, in whole seconds, as the server's own time-out counts: no subscriber, none that
// monitors, none that a command blocks.
func idleClients(list string, limit time.Duration) map[netip.AddrPort]struct{} {
	idle := make(map[netip.AddrPort]struct{})
	for line := range strings.Lines(list) {
		f := infoFields([]byte(line))
		secs, err := strconv.ParseInt(f["idle"], 10, 64)
		if err != nil || time.Duration(secs)*time.Second <= limit || strings.ContainsAny(f["flags"], "bPOSM") {
			continue
		}
		if a, ok := addrOf(f["addr"]); ok {
			idle[a] = struct{}{}
		}
	}
	return idle
}

func addrOf(s string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddrPort(s)
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), err == nil
}

// noteMoves remembers what each session has sent so far.
func noteMoves(w *sweeper) {
	for x, r := range w.All() {
		r.moves = x.moves.Load()
	}
}

// endIdle ends the sessions from those addresses, but those that have sent something since
// the server was asked, or that began since.
func endIdle(w *sweeper, idle map[netip.AddrPort]struct{}, limit time.Duration) {
	for x, r := range w.All() {
		a, ok := addrOf(x.upstream.LocalAddr().String())
		if _, is := idle[a]; ok && is && r.moves != 0 {
			x.endIdle(r.moves, limit)
		}
	}
}

func (x *session) endIdle(moves uint64, limit time.Duration) {
	x.mu.Lock()
	still := x.moves.Load() == moves && !x.core.waiting() && !x.core.ended
	if still {
		x.core.end("") // without a word, as the server does
	}
	x.mu.Unlock()
	if still {
		x.server.c.Log.Info("session was idle for too long", "client", x.client.RemoteAddr().String(), "timeout", limit)
		x.endNow("")
	}
}
