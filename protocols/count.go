package protocols

import (
	"net"
	"net/netip"
	"sync"
)

// A Count counts a listener's connections where there are bounds on them. The zero value
// is ready. It is safe for concurrent use.
type Count struct {
	mu     sync.Mutex
	n      int
	byAddr map[netip.Addr]int
}

// Enter counts one more, unless there are most already; zero means no bound.
func (c *Count) Enter(most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most > 0 && c.n >= most {
		return false
	}
	c.n++
	return true
}

// Leave takes one off again.
func (c *Count) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
}

// EnterFrom counts one more from the address of a client, its port aside, unless there are
// most already; zero means no bound. Clients on a Unix socket are not counted.
func (c *Count) EnterFrom(a net.Addr, most int) bool {
	ip, ok := ipOf(a)
	if !ok || most == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byAddr[ip] >= most {
		return false
	}
	if c.byAddr == nil {
		c.byAddr = make(map[netip.Addr]int)
	}
	c.byAddr[ip]++
	return true
}

// LeaveFrom takes one off again that EnterFrom counted with the same bound.
func (c *Count) LeaveFrom(a net.Addr, most int) {
	ip, ok := ipOf(a)
	if !ok || most == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byAddr[ip]--; c.byAddr[ip] <= 0 {
		delete(c.byAddr, ip)
	}
}

// ClientOf names the client of an address: the address without its port. All on Unix sockets
// are one.
func ClientOf(a net.Addr) string {
	if ip, ok := ipOf(a); ok {
		return ip.String()
	}
	return "unix"
}

func ipOf(a net.Addr) (netip.Addr, bool) {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return t.AddrPort().Addr().Unmap(), true
}
