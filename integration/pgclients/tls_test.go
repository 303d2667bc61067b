package pgclients

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// With TLS on both legs, each with a certificate of its own, and SCRAM with channel
// binding where the client knows it, each client prints what it prints without the proxy.
func TestTLS(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	ca := testenv.NewAuthority(t)
	ours, theirs := ca.Issue("proxy", []string{"127.0.0.1"}, nil), ca.Issue("server", []string{"127.0.0.1"}, nil)
	server := testenv.Postgres(t, servers.PostgresOptions{
		// The tests themselves look in without TLS.
		HBA: "local all all trust\nhostssl all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n",
		Settings: []string{"ssl=on", "ssl_cert_file=" + theirs.Cert, "ssl_key_file=" + theirs.Key,
			"max_prepared_transactions=10"},
	})
	s := newStageOn(t, ctx, "tls", server,
		fmt.Sprintf("tls: {cert: %s, key: %s}", ours.Cert, ours.Key),
		fmt.Sprintf("upstream_tls: {mode: verify-full, ca: %s}", ca.CA), "scram_verifiers: control")
	c := s.lead(t, ctx, "tls")
	verified := func(p place) place {
		p.sslmode, p.ca = "verify-full", ca.CA
		return p
	}
	required := func(p place) place {
		p.sslmode = "require"
		return p
	}
	direct, reader, leader := verified(s.direct()), verified(s.reader()), verified(s.leader(c))

	t.Run("psql", func(t *testing.T) {
		s.fresh(t, ctx)
		want := psql(t, ctx, direct, "session.sql")
		testenv.Holds(t, "session", want, "SSL connection (protocol: TLSv1.3", "\ndone\n")
		s.fresh(t, ctx)
		testenv.Same(t, "session", psql(t, ctx, leader, "session.sql"), want)
		testenv.Same(t, "read", psql(t, ctx, reader, "read.sql"), psql(t, ctx, direct, "read.sql"))
		for _, binding := range []string{"disable", "prefer", "require"} {
			for _, p := range []place{leader, required(s.leader(c))} {
				out := p.run(t, ctx, "", testenv.Tool(t, "psql"), "-XAtc", "show fence.status", "channel_binding="+binding)
				if out != "bound\n" {
					t.Errorf("%s, channel_binding=%s: %s", p.sslmode, binding, out)
				}
			}
		}
		if out, err := leader.try(ctx, "", testenv.Tool(t, "psql"), "-XAtc", "select 1", "host=localhost"); err == nil || !strings.Contains(out, "certificate") {
			t.Errorf("another name: %v %s", err, out)
		}
	})
	t.Run("pgx", func(t *testing.T) {
		run := func(p place, f func(context.Context, *book, *pgx.Conn)) string {
			var b book
			conn := connect(t, ctx, p.dsn())
			f(ctx, &b, conn)
			conn.Close(ctx)
			return b.String()
		}
		s.fresh(t, ctx)
		want := run(direct, pgxSession)
		s.fresh(t, ctx)
		testenv.Same(t, "session", run(leader, pgxSession), want)
		testenv.Same(t, "read", run(reader, pgxReads), run(direct, pgxReads))
		var status string
		if err := connect(t, ctx, required(s.leader(c)).dsn("channel_binding=require")).QueryRow(ctx, "show fence.status").Scan(&status); err != nil || status != "bound" {
			t.Errorf("%s %v", status, err)
		}
	})
	for _, c2 := range []*script{python(t, ctx, "psycopg", "psycopg", "psycopg_pool"), python(t, ctx, "psycopg2", "psycopg2"), nodePostgres(t), jdbc(t, ctx)} {
		t.Run(c2.name, func(t *testing.T) {
			s.fresh(t, ctx)
			want := c2.run(t, ctx, direct, "session")
			testenv.Holds(t, "session", want, "\ndone\n")
			s.fresh(t, ctx)
			testenv.Same(t, "session", c2.run(t, ctx, leader, "session"), want)
			testenv.Same(t, "read", c2.run(t, ctx, reader, "read"), c2.run(t, ctx, direct, "read"))
			c2.checkWays(t, s, c2.run(t, ctx, leader, "ways"))
			c2.checkWays(t, s, c2.run(t, ctx, required(s.leader(c)), "ways"))
			if out, err := c2.command(ctx, s.leader(c), "ways").CombinedOutput(); err == nil {
				t.Errorf("without TLS: %s", out)
			} else if _, ok := err.(*exec.ExitError); !ok {
				t.Error(err)
			}
		})
	}
}
