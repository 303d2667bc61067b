package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// askRedis pings a Redis or Valkey as somebody who has not logged in, over TLS or by
// Unix socket as sessions would.
func askRedis(ctx context.Context, l *config.Listener) (how string, err error) {
	up, err := tlsconf.OpenClient(*l.UpstreamTLS)
	if err != nil {
		return "", err
	}
	conn, err := resp.Dialer{TLS: up, KeepAlive: l.KeepAlive}.Dial(ctx, l.Upstream)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// TLS would wait to say goodbye.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	switch err := ping(conn); {
	case errors.Is(err, errNoRedis):
		return "", fmt.Errorf("%w %s", err, l.Protocol)
	case err != nil:
		return "", fmt.Errorf("accepts connections but does not answer: %w", err)
	}
	if t, ok := conn.(tlsconf.Stream); ok {
		state := t.ConnectionState()
		return said(&state, l.UpstreamTLS), nil
	}
	if _, ok := l.Protocol.SocketPath(l.Upstream); ok {
		return ", by its socket", askDirect(ctx, l, up, conn)
	}
	return "", nil
}

var errNoRedis = errors.New("answers, but not as")

func ping(conn net.Conn) error {
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	b, err := bufio.NewReader(conn).ReadByte()
	if err != nil {
		return err
	}
	if strings.IndexByte("+-", b) < 0 {
		return errNoRedis
	}
	return nil
}

// askDirect reports whether sessions by Unix socket could be bound. A control connection
// that does not work is reported with the fence.
func askDirect(ctx context.Context, l *config.Listener, up *tlsconf.Client, conn net.Conn) error {
	o, err := redisfence.ParseURL(l.Control.Reveal(), redisOptions(l, up, nil))
	if err != nil {
		return nil
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	client := redis.NewClient(o)
	defer client.Close()
	if err := resp.Direct(ctx, conn, client); errors.Is(err, resp.ErrPooler) || errors.Is(err, resp.ErrUnproven) {
		return err
	}
	return nil
}
