package redisfence

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ParseURL reads the URL of a control connection: redis://, rediss:// (TLS), the same
// as valkey:// and valkeys://, or unix:// (a socket). With o.TLS, connections by TLS are
// made as it says.
func ParseURL(url string, o Options) (*redis.Options, error) {
	if rest, ok := strings.CutPrefix(url, "valkey"); ok {
		url = "redis" + rest
	}
	r, err := redis.ParseURL(url)
	if err != nil {
		// What ParseURL says may hold a part of the password.
		return nil, fmt.Errorf("control connection: %w", ErrURL)
	}
	if o.TLS != nil && r.TLSConfig != nil {
		r.Dialer = DialTLS(o.TLS, r.DialTimeout)
	}
	return r, nil
}

// DialTLS is a go-redis Dialer that begins each connection with TLS as config says for
// the host, so that certificates may be replaced, and every node of several be known by its
// own name. Zero timeout means go-redis's own.
func DialTLS(config func(host string) *tls.Config, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: cmp.Or(timeout, 5*time.Second)}, Config: config(host)}
		return d.DialContext(ctx, network, addr)
	}
}
