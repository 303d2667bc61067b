package protocols

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// proxyHeader is a header with a body.
func proxyHeader(command, family byte, body ...[]byte) []byte {
	all := bytes.Join(body, nil)
	h := append(bytes.Clone(proxySignature), command, family)
	h = binary.BigEndian.AppendUint16(h, uint16(len(all)))
	return append(h, all...)
}

func proxyField(kind byte, value string) []byte {
	f := binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(value)))
	return append(f, value...)
}

// summed puts the right checksum into a header whose last field is for it.
func summed(h []byte) []byte {
	sum := crc32.Checksum(h, crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(h[len(h)-4:], sum)
	return h
}

var (
	addr4 = []byte{192, 0, 2, 7, 10, 0, 0, 1, 0x30, 0x39, 0x15, 0x38}
	addr6 = append(append(netip.MustParseAddr("2001:db8::7").AsSlice(), netip.MustParseAddr("2001:db8::1").AsSlice()...), 0x30, 0x39, 0x15, 0x38)
	mapt6 = append(append(netip.MustParseAddr("::ffff:192.0.2.7").AsSlice(), netip.MustParseAddr("2001:db8::1").AsSlice()...), 0x30, 0x39, 0x15, 0x38)
	unixs = append(append([]byte("/run/client"), make([]byte, 97)...), make([]byte, 108)...)
	crc0  = proxyField(proxyCRC, "\x00\x00\x00\x00")
)

// With what comes behind it: not one byte of that is taken.
func TestProxyHeader(t *testing.T) {
	cases := []struct {
		name   string
		header []byte
		want   string // the client's address; empty for none; "!" for a mistake
	}{
		{"TCP4", proxyHeader(proxyProxied, proxyTCP4, addr4), "192.0.2.7:12345"},
		{"TCP6", proxyHeader(proxyProxied, proxyTCP6, addr6), "[2001:db8::7]:12345"},
		{"TCP6, an IPv4 client", proxyHeader(proxyProxied, proxyTCP6, mapt6), "192.0.2.7:12345"},
		{"Unix", proxyHeader(proxyProxied, proxyUnix, unixs), "/run/client"},
		{"unspecified", proxyHeader(proxyProxied, proxyUnspecified), ""},
		{"unspecified, with fields", proxyHeader(proxyProxied, proxyUnspecified, proxyField(4, "noop")), ""},
		{"local", proxyHeader(proxyLocal, proxyUnspecified), ""},
		{"local, with addresses", proxyHeader(proxyLocal, proxyTCP4, addr4), ""},
		{"local, with anything", proxyHeader(proxyLocal, 0xff, []byte("xyz")), ""},
		{"fields", proxyHeader(proxyProxied, proxyTCP4, addr4, proxyField(1, "h2"), proxyField(0x20, strings.Repeat("x", 300)), proxyField(4, "")), "192.0.2.7:12345"},
		{"checksum", summed(proxyHeader(proxyProxied, proxyTCP4, addr4, proxyField(5, "id"), crc0)), "192.0.2.7:12345"},
		{"checksum, unspecified", summed(proxyHeader(proxyProxied, proxyUnspecified, crc0)), ""},
		{"wrong checksum", proxyHeader(proxyProxied, proxyTCP4, addr4, crc0), "!"},
		{"short checksum", proxyHeader(proxyProxied, proxyTCP4, addr4, proxyField(proxyCRC, "abc")), "!"},
		{"two checksums", proxyHeader(proxyProxied, proxyTCP4, addr4, crc0, crc0), "!"},
		{"a field cut short", proxyHeader(proxyProxied, proxyTCP4, addr4, []byte{1, 0, 9, 'x'}), "!"},
		{"a field's head cut short", proxyHeader(proxyProxied, proxyTCP4, addr4, []byte{1, 0}), "!"},
		{"addresses cut short", proxyHeader(proxyProxied, proxyTCP4, addr4[:11]), "!"},
		{"addresses of the other family", proxyHeader(proxyProxied, proxyTCP6, addr4), "!"},
		{"Unix cut short", proxyHeader(proxyProxied, proxyUnix, unixs[:215]), "!"},
		{"datagrams", proxyHeader(proxyProxied, 0x12, addr4), "!"},
		{"unknown family", proxyHeader(proxyProxied, 0x41, addr4), "!"},
		{"unknown command", proxyHeader(0x22, proxyTCP4, addr4), "!"},
		{"version 1 in binary", proxyHeader(0x11, proxyTCP4, addr4), "!"},
		{"version 1", []byte("PROXY TCP4 192.0.2.7 10.0.0.1 12345 5432\r\n"), "!"},
		{"a start-up packet", []byte("\x00\x00\x00\x11\x00\x03\x00\x00user\x00app\x00\x00"), "!"},
		{"a wrong signature", append([]byte("\r\n\r\n\x00\r\nQUIT\r"), proxyHeader(proxyProxied, proxyTCP4, addr4)[12:]...), "!"},
		{"too long", append(bytes.Clone(proxySignature), proxyProxied, proxyTCP4, 0xff, 0xff), "!"},
	}
	p := &ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := tcpPair(t)
			go func() {
				for _, piece := range append(c.header, "behind"...) {
					if _, err := b.Write([]byte{piece}); err != nil {
						return
					}
				}
				_ = b.CloseWrite()
			}()
			got, err := p.Accept(a)
			if c.want == "!" {
				if !errors.Is(err, ErrProxyHeader) || got != nil {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want == "" {
				want = a.RemoteAddr().String()
			}
			if s := got.RemoteAddr().String(); s != want {
				t.Errorf("from %s, want %s", s, want)
			}
			if rest, err := io.ReadAll(got); string(rest) != "behind" {
				t.Errorf("behind the header: %q, %v", rest, err)
			}
			if _, ok := got.(interface{ CloseWrite() error }); !ok {
				t.Error("cannot end its sending side")
			}
		})
	}
}

func tcpPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// An untrusted peer is not believed, nor read.
func TestProxyHeaderOfAnUntrustedPeer(t *testing.T) {
	for _, trusted := range []string{"10.0.0.0/8", "::/0"} {
		a, b := tcpPair(t)
		p := &ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix(trusted)}}
		_, _ = b.Write(proxyHeader(proxyProxied, proxyTCP4, addr4))
		_ = b.CloseWrite()
		if got, err := p.Accept(a); !errors.Is(err, ErrUntrusted) || got != nil {
			t.Errorf("%v, %v", got, err)
		}
		if rest, _ := io.ReadAll(a); len(rest) != len(proxyHeader(proxyProxied, proxyTCP4, addr4)) {
			t.Errorf("%d bytes are left", len(rest))
		}
	}
	if c, err := (*ProxyProtocol)(nil).Accept(nil); c != nil || err != nil {
		t.Error(c, err)
	}
}

// A header that comes a byte a second is waited for no longer than the deadline.
func TestProxyHeaderIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer a.Close()
		wg.Go(func() {
			defer b.Close()
			for _, piece := range proxyHeader(proxyProxied, proxyTCP4, addr4) {
				time.Sleep(time.Second)
				if _, err := b.Write([]byte{piece}); err != nil {
					return
				}
			}
		})
		start := time.Now()
		_ = a.SetDeadline(start.Add(10 * time.Second))
		_, err := (&ProxyProtocol{}).Accept(unixed{a})
		if err == nil || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// unixed is a connection on a Unix socket.
type unixed struct{ net.Conn }

func (unixed) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func FuzzProxyHeader(f *testing.F) {
	f.Add(proxyHeader(proxyProxied, proxyTCP4, addr4, proxyField(1, "x"))[12:])
	f.Add(proxyHeader(proxyProxied, proxyUnix, unixs)[12:])
	f.Add(summed(proxyHeader(proxyProxied, proxyTCP6, addr6, proxyField(4, ""), crc0))[12:])
	f.Fuzz(func(t *testing.T, b []byte) {
		a, c := net.Pipe()
		defer a.Close()
		sent := append(bytes.Clone(proxySignature), b...)
		go func() { _, _ = c.Write(sent); c.Close() }()
		got, err := (&ProxyProtocol{}).Accept(unixed{a})
		if (got == nil) == (err == nil) {
			t.Fatalf("%v, %v", got, err)
		}
		if err == nil {
			rest, _ := io.ReadAll(got)
			if n := 16 + int(b[2])<<8 + int(b[3]); len(sent)-len(rest) != n {
				t.Errorf("took %d bytes, the header has %d", len(sent)-len(rest), n)
			}
		}
	})
}
