package pg

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

func isCancel(packet []byte) bool { return binary.BigEndian.Uint32(packet[4:]) == codeCancel }

// A serverOf knows on which servers a process id is a session's: a cancel request names
// the process alone, and two servers may have one of that number. The secret key is for
// the server to compare.
type serverOf struct {
	mu  sync.Mutex
	pid map[uint32][]target
}

// enter records a session; the returned function forgets it.
func (s *serverOf) enter(pid uint32, t target) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == nil {
		s.pid = make(map[uint32][]target)
	}
	s.pid[pid] = append(s.pid[pid], t)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		ts := s.pid[pid]
		if i := slices.Index(ts, t); i >= 0 {
			ts = slices.Delete(ts, i, i+1)
		}
		if s.pid[pid] = ts; len(ts) == 0 {
			delete(s.pid, pid)
		}
	}
}

func (s *serverOf) find(pid uint32) []target {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []target
	for _, t := range s.pid[pid] {
		if !slices.Contains(found, t) {
			found = append(found, t)
		}
	}
	return found
}

// cancel forwards a CancelRequest to the server that has the session; to each of them
// where that is not known, as with a session that another proxy serves. All connections
// stay open until the servers have closed their side: only then has it been acted on, and
// a client that waits for that may send its next query without losing it to the cancel.
func (s *Server) cancel(ctx context.Context, client net.Conn, packet []byte) {
	var to []target
	if len(packet) >= 12 {
		to = s.servers.find(binary.BigEndian.Uint32(packet[8:]))
	}
	if len(to) == 0 {
		to = s.hosts.all
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, t := range to[1:] {
		wg.Go(func() { s.cancelAt(ctx, t, packet, io.Discard) })
	}
	s.cancelAt(ctx, to[0], packet, client)
	endWriting(client) // in TLS, too
}

func (s *Server) cancelAt(ctx context.Context, t target, packet []byte, client io.Writer) {
	upstream, err := s.dialTarget(ctx, t)
	if err != nil {
		s.cfg.Logger.Warn("cancel request: connecting to the server", "upstream", t.addr, "err", err)
		return
	}
	s.ask(ctx, upstream, packet, client)
}

// ask sends one packet to a server and passes on what it says until it closes.
func (s *Server) ask(ctx context.Context, upstream stream, packet []byte, client io.Writer) {
	defer upstream.Close()
	stop := context.AfterFunc(ctx, func() { _ = upstream.Close() })
	defer stop()
	_ = upstream.SetDeadline(time.Now().Add(s.cfg.LoginTimeout))
	if _, err := upstream.Write(packet); err == nil {
		_, err = io.Copy(client, upstream)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			s.cfg.Logger.Debug("asking the server", "err", err)
		}
	}
}
