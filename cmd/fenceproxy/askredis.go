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

var errDifferent = errors.New("upstream and control lead to different servers")

const differentFix = "They must lead to the same server, or every bind is refused."

// sameRun reports whether upstream and control lead to one Redis or Valkey, by the id that
// each run of a server has. known is false where that cannot be told.
func sameRun(ctx context.Context, l *config.Listener, timeout time.Duration) (same, known bool) {
	if l.Protocol == config.Postgres || l.Group != config.NoGroup {
		return false, false
	}
	up, err := tlsconf.OpenClient(*l.UpstreamTLS)
	if err != nil {
		return false, false
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	control, err := redisfence.ParseURL(l.Control.Reveal(), redisOptions(l, up, nil))
	if err != nil {
		return false, false
	}
	there := redis.Options{Addr: l.Upstream, Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return resp.Dialer{TLS: up, KeepAlive: l.KeepAlive}.Dial(ctx, addr)
	}}
	theirs := runID(ctx, there)
	// A password that goes by TLS is not shown to upstream without.
	if theirs == "" && control.Password != "" && (control.TLSConfig == nil || up.Mode() != tlsconf.Disable) {
		there.Username, there.Password = control.Username, control.Password
		theirs = runID(ctx, there)
	}
	ours := runID(ctx, *control)
	return ours == theirs, ours != "" && theirs != ""
}

// runID is the id of a server's run; empty if it does not tell.
func runID(ctx context.Context, o redis.Options) string {
	o.Protocol, o.DisableIdentity, o.ContextTimeoutEnabled = 2, true, true
	o.MaxRetries, o.DialerRetries, o.DB = -1, 1, 0
	c := redis.NewClient(&o)
	defer c.Close()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return ""
	}
	return redisfence.ParseInfo(info)["run_id"]
}
