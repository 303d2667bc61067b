package electiontest

import (
	"net"
	"sync"
	"testing"
)

// A Link is the network between a backend and its server: a loopback listener that
// passes connections on, until told otherwise.
type Link struct {
	server string
	l      net.Listener

	mu      sync.Mutex
	state   linkState
	changed chan struct{} // closed when the state changes
	pairs   map[*linkPair]struct{}
}

type linkState uint8

const (
	linkPasses linkState = iota
	linkStalls
	linkDeaf
	linkDown
)

// A linkPair is one connection and its other half.
type linkPair struct {
	client, server net.Conn
	torn           bool // bytes were lost: of no use any more
}

func (p *linkPair) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// NewLink returns a link to the server at an address, for the length of the test.
func NewLink(t testing.TB, server string) *Link {
	t.Helper()
	k := &Link{server: server, changed: make(chan struct{}), pairs: make(map[*linkPair]struct{})}
	k.l = listen(t, k.serve)
	t.Cleanup(k.Cut) // before listen's, so that nothing stalls
	return k
}

// Addr is where to find the server by this link.
func (k *Link) Addr() string { return k.l.Addr().String() }

// Pass lets everything through. What was stalled arrives late.
func (k *Link) Pass() { k.set(linkPasses) }

// Stall lets nothing through, in either direction, and tells nobody.
func (k *Link) Stall() { k.set(linkStalls) }

// Deafen loses what the server says. Connections that lost something break at the next
// change.
func (k *Link) Deafen() { k.set(linkDeaf) }

// Cut breaks all connections, and new ones as they come.
func (k *Link) Cut() { k.set(linkDown) }

// Break breaks the connections that there are.
func (k *Link) Break() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.pairs {
		p.close()
	}
}

func (k *Link) set(s linkState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = s
	for p := range k.pairs {
		if s == linkDown || p.torn {
			p.close()
		}
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// passable waits while the link stalls and returns its state then.
func (k *Link) passable() linkState {
	for {
		k.mu.Lock()
		state, changed := k.state, k.changed
		k.mu.Unlock()
		if state != linkStalls {
			return state
		}
		<-changed
	}
}

func (k *Link) serve(c net.Conn) {
	if k.passable() == linkDown {
		return
	}
	up, err := net.Dial("tcp", k.server)
	if err != nil {
		return
	}
	p := &linkPair{client: c, server: up}
	k.mu.Lock()
	k.pairs[p] = struct{}{}
	if k.state == linkDown {
		p.close()
	}
	k.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { k.copy(p, up, c, false) })
	wg.Go(func() { k.copy(p, c, up, true) })
	wg.Wait()
	k.mu.Lock()
	delete(k.pairs, p)
	k.mu.Unlock()
}

// copy passes bytes on until either side ends.
func (k *Link) copy(p *linkPair, to, from net.Conn, reply bool) {
	defer p.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if k.passable() == linkDeaf && reply {
				k.mu.Lock()
				p.torn = true
				k.mu.Unlock()
			} else if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
