package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// An authRig is a server that authenticates, by the name of the database: d_scram by
// SCRAM, d_md5 by MD5, and so on.
type authRig struct {
	*rig
	super string // a DSN
}

const (
	rightPassword = "sec'ret wörd ß"
	authHBA       = `
		host postgres postgres,fenceproxy 127.0.0.1/32 trust
		host d_scram all 127.0.0.1/32 scram-sha-256
		host d_md5 all 127.0.0.1/32 md5
		host d_password all 127.0.0.1/32 password
		host d_trust all 127.0.0.1/32 trust
		host d_reject all 127.0.0.1/32 reject
		host d_gss all 127.0.0.1/32 gss
		hostssl d_cert all 127.0.0.1/32 cert
		local all all peer
`
)

var authDatabases = []string{"d_scram", "d_md5", "d_password", "d_trust", "d_reject", "d_cert"}

func newAuthRig(t *testing.T, bin string, settings ...string) *authRig {
	t.Helper()
	hba := authHBA
	if bin != "" {
		hba = strings.ReplaceAll(hba, "host d_gss", "# ") // not every build has GSS
	}
	p := testenv.Postgres(t, servers.PostgresOptions{Bin: bin, HBA: hba, Settings: settings})
	r := &authRig{rig: &rig{t: t, pg: p, guard: &fakeGuard{}}, super: p.DSN(servers.Superuser, "postgres")}
	r.admin = connect(t, r.super)
	for _, db := range append(authDatabases, "d_gss") {
		mustExec(t, r.admin, "CREATE DATABASE "+db)
	}
	for _, method := range []string{"scram-sha-256", "md5"} {
		name := strings.TrimSuffix(method, "-sha-256")
		mustExec(t, r.admin, "SET password_encryption = '"+method+"'")
		for role, options := range map[string]string{
			"": "LOGIN", "_expired": "LOGIN VALID UNTIL '2001-01-01'", "_soon": "LOGIN VALID UNTIL '2999-01-01'", "_nologin": "NOLOGIN", "_super": "LOGIN SUPERUSER",
		} {
			mustExec(t, r.admin, fmt.Sprintf("CREATE ROLE %s%s %s PASSWORD '%s'", name, role, options, strings.ReplaceAll(rightPassword, "'", "''")))
		}
	}
	mustExec(t, r.admin, "CREATE ROLE nopassword LOGIN")
	mustExec(t, r.admin, `CREATE ROLE "We""ird é" LOGIN PASSWORD 'sec''ret'`)
	return r
}

var authRoles = []string{"scram", "scram_expired", "scram_soon", "scram_nologin", "scram_super", "md5", "md5_expired", "md5_soon", "md5_nologin", "md5_super",
	"nopassword", "nobody", `We"ird é`, strings.Repeat("x", 70)}

// loginOutcome logs in and says how that went, with everything that the server said.
func loginOutcome(ctx context.Context, addr, params, role, password, db string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Host: addr, Path: db, RawQuery: params}
	conn, err := pgx.Connect(ctx, u.String())
	if err == nil {
		defer conn.Close(ctx)
		var who string
		if err = conn.QueryRow(ctx, "SELECT current_user").Scan(&who); err == nil {
			return "in as " + who
		}
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return strings.TrimRight(fmt.Sprintln(refused.Severity, refused.Code, refused.Message, refused.Detail, refused.Hint), " \n")
	}
	return strings.ReplaceAll(err.Error(), addr, "ADDR")
}

// psql logs in as libpq does, and says how that went.
func psql(t *testing.T, addr, role, password, db string, params ...string) string {
	t.Helper()
	return psqlQuery(t, "SELECT 'in as ' || current_user", addr, role, password, db, params...)
}

func psqlQuery(t *testing.T, sql, addr, role, password, db string, params ...string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
	}
	conn := append([]string{"host=" + host, "port=" + port, "user=" + quote(role), "dbname=" + db, "gssencmode=disable"}, params...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "psql", "-XAtw", "-c", sql, strings.Join(conn, " "))
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "PG") }), "PGPASSWORD="+password, "LC_ALL=C", "HOME=/nonexistent")
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(strings.ReplaceAll(string(out), "port "+port, "PORT"))
}

// Every way to authenticate ends as it does without the proxy, word for word.
func TestAuthenticationIsTheServers(t *testing.T) {
	r := newAuthRig(t, "")
	r.serve(nil)
	seen := make(map[string]bool)
	for _, db := range authDatabases {
		for _, role := range authRoles {
			for _, password := range []string{rightPassword, "sec'ret", ""} {
				direct := loginOutcome(t.Context(), r.pg.Addr, "sslmode=disable", role, password, db)
				proxied := loginOutcome(t.Context(), r.addr, "sslmode=disable", role, password, db)
				if direct != proxied {
					t.Errorf("%s as %s with %q:\n%s\nnot\n%s", db, role, password, proxied, direct)
				}
				word, _, _ := strings.Cut(direct, ":")
				seen[db+" "+strings.Join(strings.Fields(word)[:2], " ")] = true
			}
		}
	}
	for _, want := range []string{"d_scram in as", "d_scram FATAL 28P01", "d_scram FATAL 28000", "d_md5 in as", "d_password in as", "d_trust in as", "d_reject FATAL 28000"} {
		if !seen[want] {
			t.Errorf("none of the outcomes is %s: %v", want, seen)
		}
	}
}

func TestLibpqAuthenticationIsTheServers(t *testing.T) {
	r := newAuthRig(t, "")
	r.serve(nil)
	for _, db := range append(authDatabases, "d_gss") {
		for _, role := range []string{"scram", "md5", "nobody", "scram_nologin"} {
			for _, password := range []string{rightPassword, "wrong"} {
				for _, binding := range []string{"prefer", "require"} {
					direct := psql(t, r.pg.Addr, role, password, db, "sslmode=disable", "channel_binding="+binding)
					proxied := psql(t, r.addr, role, password, db, "sslmode=disable", "channel_binding="+binding)
					if direct != proxied {
						t.Errorf("%s as %s with %q:\n%s\nnot\n%s", db, role, password, proxied, direct)
					}
				}
			}
		}
	}
}

// What is no answer to a request for a password gets the server's own words, and none
// of it goes upstream but its type.
func TestNoAnswerToARequestForAPassword(t *testing.T) {
	r := newAuthRig(t, "")
	r.serve(nil)
	for _, db := range []string{"d_scram", "d_md5", "d_password"} {
		for name, m := range map[string][]byte{
			"a statement":    appendQuery(nil, "SELECT 1"),
			"a Sync":         syncs,
			"an unknown one": []byte("y\x00\x00\x00\x08more"),
			"an empty one":   []byte("p\x00\x00\x00\x04"),
			"a long one":     appendBody(nil, 'p', make([]byte, 1025)),
			"a longer one":   appendBody(nil, 'p', make([]byte, 65531)),
			"too long a one": appendBody(nil, 'p', make([]byte, 65532)),
			"a bad length":   []byte("p\x00\x00\x00\x03"),
			"no SASL":        initial("SCRAM-SHA-1", "n,,n=,r=x"),
			"a bad first":    initial("SCRAM-SHA-256", "n,,r=x,n="),
			"authorization":  initial("SCRAM-SHA-256", "n,a=other,n=,r=x"),
			"PLUS":           initial("SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=x"),
		} {
			say := func(addr string) string {
				c := dialRaw(t, addr)
				c.send(startPacket(v3, "user", "scram", "database", db))
				c.until('R')
				c.send(m)
				b, _ := io.ReadAll(c) // the server resets a connection that it did not read to the end
				return string(b)
			}
			if direct, proxied := say(r.pg.Addr), say(r.addr); direct != proxied {
				t.Errorf("%s, %s:\n%q\nnot\n%q", db, name, proxied, direct)
			}
		}
	}
}
