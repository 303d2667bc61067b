package protocols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// A ProxyProtocol says from whom the header of the PROXY protocol, version 2, is taken: a
// load balancer's way of saying which client a connection is from. Every connection must
// then begin with one. What it says is believed, so that only Trusted peers may say it.
type ProxyProtocol struct {
	// Trusted are the networks of the peers that may connect. A peer on a Unix socket is
	// trusted: the socket's permissions let it in.
	Trusted []netip.Prefix
}

// Errors of ProxyProtocol.Accept, for errors.Is.
var (
	// ErrUntrusted: the peer is not one that may say on whose behalf it connects.
	ErrUntrusted = errors.New("the peer is not a trusted proxy")
	// ErrProxyHeader: what the peer sent is no header of version 2, or is broken.
	ErrProxyHeader = errors.New("malformed PROXY protocol header")
)

// maxProxyHeader bounds what follows a header's first 16 bytes.
const maxProxyHeader = 16 << 10

var proxySignature = []byte("\r\n\r\n\x00\r\nQUIT\n")

// Accept reads the header, and not one byte more, and returns the connection as one from
// the address that it names. Bound the time by the connection's deadline. A nil
// ProxyProtocol returns the connection as it is.
func (p *ProxyProtocol) Accept(client net.Conn) (net.Conn, error) {
	if p == nil {
		return client, nil
	}
	// Invariant: nobody else's word is taken for where a client is. An untrusted peer is not
	// even read.
	if !p.trusts(client.RemoteAddr()) {
		return nil, ErrUntrusted
	}
	var head [16]byte
	if _, err := io.ReadFull(client, head[:]); err != nil {
		return nil, fmt.Errorf("reading the PROXY protocol header: %w", err)
	}
	if !bytes.Equal(head[:12], proxySignature) {
		return nil, fmt.Errorf("%w: it does not begin as one of version 2", ErrProxyHeader)
	}
	n := int(binary.BigEndian.Uint16(head[14:]))
	if n > maxProxyHeader {
		return nil, fmt.Errorf("%w: %d bytes long", ErrProxyHeader, n)
	}
	header := make([]byte, 16+n)
	copy(header, head[:])
	if _, err := io.ReadFull(client, header[16:]); err != nil {
		return nil, fmt.Errorf("reading the PROXY protocol header: %w", err)
	}
	remote, err := parseProxyHeader(header)
	switch {
	case err != nil:
		return nil, err
	case remote == nil:
		return client, nil
	}
	c := &proxiedConn{Conn: client, remote: remote}
	if s, ok := client.(stream); ok {
		return &proxiedStream{c, s}, nil
	}
	return c, nil
}

func (p *ProxyProtocol) trusts(peer net.Addr) bool {
	switch a := peer.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		ip := a.AddrPort().Addr().Unmap().WithZone("")
		return slices.ContainsFunc(p.Trusted, func(n netip.Prefix) bool { return n.Contains(ip) })
	}
	return false
}

// The commands and families of a header.
const (
	proxyLocal   = 0x20 // the proxy's own connection, a health check's
	proxyProxied = 0x21

	proxyUnspecified = 0x00
	proxyTCP4        = 0x11
	proxyTCP6        = 0x21
	proxyUnix        = 0x31
)

// parseProxyHeader reads a whole header, whose signature and length are right. It returns
// the client's address, nil where the connection is not on anybody's behalf.
func parseProxyHeader(header []byte) (net.Addr, error) {
	command, family, body := header[12], header[13], header[16:]
	switch command {
	case proxyProxied:
	case proxyLocal:
		return nil, nil // what follows is to be skipped, whatever it is
	default:
		return nil, fmt.Errorf("%w: version and command %#x", ErrProxyHeader, command)
	}
	var (
		remote net.Addr
		size   int
	)
	switch family {
	case proxyUnspecified:
	case proxyTCP4:
		size = 2*4 + 2*2
	case proxyTCP6:
		size = 2*16 + 2*2
	case proxyUnix:
		size = 2 * 108
	default:
		return nil, fmt.Errorf("%w: family and transport %#x", ErrProxyHeader, family)
	}
	if len(body) < size {
		return nil, fmt.Errorf("%w: %d bytes of addresses, should be %d", ErrProxyHeader, len(body), size)
	}
	switch family {
	case proxyTCP4:
		remote = tcpAddr(netip.AddrFrom4([4]byte(body)), body[8:])
	case proxyTCP6:
		remote = tcpAddr(netip.AddrFrom16([16]byte(body)).Unmap(), body[32:])
	case proxyUnix:
		name, _, _ := bytes.Cut(body[:108], []byte{0})
		remote = &net.UnixAddr{Name: string(name), Net: "unix"}
	}
	return remote, checkProxyFields(header, 16+size)
}

func tcpAddr(ip netip.Addr, port []byte) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port)))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// proxyCRC is the type of the field that holds the header's checksum.
const proxyCRC = 0x03

// checkProxyFields walks the fields from at on. All but the checksum are skipped.
func checkProxyFields(header []byte, at int) error {
	sum := -1
	for at < len(header) {
		if len(header)-at < 3 {
			return fmt.Errorf("%w: a field is cut short", ErrProxyHeader)
		}
		kind, n := header[at], int(binary.BigEndian.Uint16(header[at+1:]))
		at += 3
		if len(header)-at < n {
			return fmt.Errorf("%w: a field is cut short", ErrProxyHeader)
		}
		if kind == proxyCRC {
			if n != 4 || sum >= 0 {
				return fmt.Errorf("%w: its checksum is not four bytes, once", ErrProxyHeader)
			}
			sum = at
		}
		at += n
	}
	if sum < 0 {
		return nil
	}
	crc := crc32.Update(0, castagnoli, header[:sum])
	crc = crc32.Update(crc, castagnoli, make([]byte, 4))
	if crc = crc32.Update(crc, castagnoli, header[sum+4:]); crc != binary.BigEndian.Uint32(header[sum:]) {
		return fmt.Errorf("%w: its checksum is wrong", ErrProxyHeader)
	}
	return nil
}

// A stream is a connection whose sending side can be ended alone.
type stream interface {
	net.Conn
	CloseWrite() error
}

// A proxiedConn is a connection on somebody's behalf.
type proxiedConn struct {
	net.Conn
	remote net.Addr
}

// RemoteAddr is the client's address.
func (c *proxiedConn) RemoteAddr() net.Addr { return c.remote }

// NetConn is the connection itself.
func (c *proxiedConn) NetConn() net.Conn { return c.Conn }

// Behalf is the connection itself, to which nothing but an address was added.
func (c *proxiedConn) Behalf() net.Conn { return c.Conn }

// SyscallConn is the connection's.
func (c *proxiedConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, syscall.EINVAL
}

type proxiedStream struct {
	*proxiedConn
	s stream
}

// CloseWrite ends the sending side.
func (c *proxiedStream) CloseWrite() error { return c.s.CloseWrite() }
