package pg

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A scramRig is an authRig with TLS, and everything that SCRAM verifiers come from.
type scramRig struct {
	*authRig
	ca            *testenv.Authority
	server, proxy testenv.Cert
	function      Verifiers // the control database's
	userlist      *Userlist // with every verifier that the server has
}

func newScramRig(t *testing.T) *scramRig {
	t.Helper()
	return newScramRigOf(t, "")
}

func newScramRigOf(t *testing.T, bin string) *scramRig {
	t.Helper()
	ca := testenv.NewAuthority(t)
	r := &scramRig{ca: ca, server: ca.Issue("server", []string{"127.0.0.1"}, nil), proxy: ca.Issue("proxy", []string{"127.0.0.1"}, nil)}
	r.authRig = newAuthRig(t, bin, "ssl=on", "ssl_cert_file="+r.server.Cert, "ssl_key_file="+r.server.Key, "ssl_ca_file="+ca.CA)
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Login: true, SCRAM: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.admin.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
	f, err := pgfence.Open(t.Context(), r.pg.DSN(pgfence.DefaultRole, "postgres"), pgfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	r.function = f.Verifiers()
	path := filepath.Join(t.TempDir(), "userlist.txt")
	r.userlist = NewUserlist(path)
	lines := queryString(t, r.admin, `SELECT string_agg(format('"%s" "%s"', replace(rolname, '"', '""'), rolpassword), E'\n') FROM pg_authid WHERE rolpassword LIKE 'SCRAM%'`)
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// start serves with a certificate for clients, if any, and TLS to the server or not.
func (r *scramRig) start(cert *testenv.Cert, upstreamTLS bool, v Verifiers) {
	r.t.Helper()
	if r.stop != nil {
		r.stop()
	}
	r.serve(func(c *Config) {
		c.Verifiers = v
		var err error
		if cert != nil {
			if c.TLS, err = tlsconf.OpenServer(tlsconf.ServerOptions{Cert: cert.Cert, Key: cert.Key, Protocols: ALPN()}); err != nil {
				r.t.Fatal(err)
			}
		}
		if upstreamTLS {
			if c.UpstreamTLS, err = tlsconf.OpenClient(tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA, Protocols: ALPN()}); err != nil {
				r.t.Fatal(err)
			}
		}
	})
}

func (r *scramRig) trusting() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(r.ca.Cert)
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}

// P18: libpq with each channel_binding, by each of the ways that a login can go.
func TestChannelBinding(t *testing.T) {
	r := newScramRig(t)
	const (
		in         = "in as scram"
		noSSL      = "channel binding required, but SSL not in use"
		notOffered = "channel binding is required, but server did not offer"
		refused    = "SCRAM channel binding cannot pass through this proxy"
	)
	for name, c := range map[string]struct {
		cert                     *testenv.Cert
		upstream                 bool
		v                        Verifiers
		disable, prefer, require string
	}{
		"no TLS":                               {nil, false, nil, in, in, noSSL},
		"TLS to the server":                    {nil, true, nil, in, in, noSSL},
		"TLS to the server, function":          {nil, true, r.function, in, in, noSSL},
		"TLS to the client":                    {&r.proxy, false, nil, in, in, notOffered},
		"TLS to the client, function":          {&r.proxy, false, r.function, in, in, notOffered},
		"both, the same certificate":           {&r.server, true, nil, in, in, in},
		"both, the same certificate, function": {&r.server, true, r.function, in, in, in},
		"both, function":                       {&r.proxy, true, r.function, in, in, in},
		"both, userlist":                       {&r.proxy, true, r.userlist, in, in, in},
		"both, nothing":                        {&r.proxy, true, nil, in, refused, refused},
	} {
		r.start(c.cert, c.upstream, c.v)
		sslmode := "sslmode=disable"
		if c.cert != nil {
			sslmode = "sslmode=verify-full sslrootcert=" + r.ca.CA
		}
		for binding, want := range map[string]string{"disable": c.disable, "prefer": c.prefer, "require": c.require} {
			for _, db := range []string{"d_scram", "d_md5"} {
				got := psql(t, r.addr, "scram", rightPassword, db, sslmode, "channel_binding="+binding)
				if !strings.Contains(got, want) {
					t.Errorf("%s, channel_binding=%s, %s: %s", name, binding, db, got)
				}
				if want == in && c.upstream != (psqlSSL(t, r, sslmode, binding, db) == "t") {
					t.Errorf("%s, channel_binding=%s, %s: the leg to the server is not what it should be", name, binding, db)
				}
				if want == in {
					if wrong := psql(t, r.addr, "scram", "wrong", db, sslmode, "channel_binding="+binding); !strings.Contains(wrong, `FATAL:  password authentication failed for user "scram"`) {
						t.Errorf("%s, channel_binding=%s, %s, wrong password: %s", name, binding, db, wrong)
					}
				}
			}
		}
		if c.prefer == refused { // libpq then goes without TLS, where it may
			if got := psql(t, r.addr, "scram", rightPassword, "d_scram", "sslmode=prefer"); got != in {
				t.Errorf("%s, sslmode=prefer: %s", name, got)
			}
		}
		// Other methods do not care.
		for db, role := range map[string]string{"d_md5": "md5", "d_password": "scram", "d_trust": "nopassword"} {
			if got := psql(t, r.addr, role, rightPassword, db, sslmode); got != "in as "+role {
				t.Errorf("%s, %s: %s", name, db, got)
			}
		}
		params := "sslmode=disable"
		if c.cert != nil {
			params = "sslmode=verify-full&sslrootcert=" + r.ca.CA
		}
		for binding, want := range map[string]string{"disable": c.disable, "prefer": c.prefer, "require": c.require} {
			got := loginOutcome(t.Context(), r.addr, params+"&channel_binding="+binding, "scram", rightPassword, "d_scram")
			if (want == in) != (got == in) || want == refused && !strings.Contains(got, "FATAL 28000 "+refused) {
				t.Errorf("%s, channel_binding=%s by pgx: %s", name, binding, got)
			}
		}
	}
}

func psqlSSL(t *testing.T, r *scramRig, sslmode, binding, db string) string {
	t.Helper()
	return psqlQuery(t, upstreamSSL, r.addr, "scram", rightPassword, db, sslmode, "channel_binding="+binding)
}

// With the proxy in the middle every login ends as it does without, word for word.
func TestScramInTheMiddleIsTheServers(t *testing.T) {
	r := newScramRig(t)
	tls := []string{"sslmode=verify-full", "sslrootcert=" + r.ca.CA, "channel_binding=require"}
	params := strings.Join(tls, "&")
	for name, v := range map[string]Verifiers{"userlist": r.userlist, "function": r.function, "both": FirstVerifiers{r.userlist, r.function}} {
		r.start(&r.proxy, true, v)
		for _, role := range authRoles {
			for _, password := range []string{rightPassword, "sec'ret", ""} {
				if name == "both" && password != rightPassword {
					continue
				}
				direct := loginOutcome(t.Context(), r.pg.Addr, params, role, password, "d_scram")
				if name == "function" && password == rightPassword && (role == "scram_super" || role == "scram_nologin") {
					// The function does not give these out: to be refused is all that is left.
					direct = fmt.Sprintf("FATAL 28P01 password authentication failed for user %q", role)
				}
				if proxied := loginOutcome(t.Context(), r.addr, params, role, password, "d_scram"); direct != proxied {
					t.Errorf("%s, %s with %q:\n%s\nnot\n%s", name, role, password, proxied, direct)
				}
				if name != "userlist" || password == "" { // libpq asks for one itself
					continue
				}
				direct = psql(t, r.pg.Addr, role, password, "d_scram", tls...)
				if proxied := psql(t, r.addr, role, password, "d_scram", tls...); direct != proxied {
					t.Errorf("%s, %s with %q by libpq:\n%s\nnot\n%s", name, role, password, proxied, direct)
				}
			}
		}
	}
}

// The same on each version, by libpq and by pgx.
func TestScramInTheMiddleOnEachVersion(t *testing.T) {
	for _, v := range testenv.PostgresVersions(t) {
		t.Run(v.String(), func(t *testing.T) {
			r := newScramRigOf(t, v.Bin)
			r.start(&r.proxy, true, r.function)
			tls := []string{"sslmode=verify-full", "sslrootcert=" + r.ca.CA, "channel_binding=require"}
			for _, role := range []string{"scram", "md5", "nobody"} {
				for _, password := range []string{rightPassword, "wrong"} {
					for name, login := range map[string]func(addr string) string{
						"pgx": func(addr string) string {
							return loginOutcome(t.Context(), addr, strings.Join(tls, "&"), role, password, "d_scram")
						},
						"libpq": func(addr string) string { return psql(t, addr, role, password, "d_scram", tls...) },
					} {
						direct, proxied := login(r.pg.Addr), login(r.addr)
						if direct != proxied || strings.Contains(direct, "in as") != (role == "scram" && password == rightPassword) {
							t.Errorf("%s as %s with %q:\n%s\nnot\n%s", name, role, password, proxied, direct)
						}
					}
				}
			}
		})
	}
}

// What somebody sees before he has proved anything is the server's: the salt of a role,
// and that of a role that does not exist, which stays the same.
func TestScramChallengeIsTheServers(t *testing.T) {
	r := newScramRig(t)
	r.start(&r.proxy, true, r.function)
	for _, role := range []string{"scram", "nobody", "md5", "scram_super", "scram_expired"} {
		challenge := func(addr string) string {
			c := dialRaw(t, addr)
			c.send(sslRequest)
			c.letter()
			s, err := c.tls(r.trusting())
			if err != nil {
				t.Fatal(err)
			}
			s.send(startPacket(v3, "user", role, "database", "d_scram"))
			offer := s.until('R')
			s.send(initial("SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,n=,r=x"))
			_, salt, _ := strings.Cut(string(s.until('R')), ",")
			return string(offer) + salt
		}
		if direct, first, second := challenge(r.pg.Addr), challenge(r.addr), challenge(r.addr); first != direct || second != direct {
			t.Errorf("%s: %q and %q, not %q", role, first, second, direct)
		}
	}
}

// A password that changes takes effect at once, by the function; a file that lags behind
// refuses.
func TestScramPasswordChanges(t *testing.T) {
	r := newScramRig(t)
	params := "channel_binding=require&sslmode=verify-full&sslrootcert=" + r.ca.CA
	try := func(v Verifiers, password string) string {
		r.start(&r.proxy, true, v)
		return loginOutcome(t.Context(), r.addr, params, "scram", password, "d_scram")
	}
	mustExec(t, r.admin, "SET password_encryption = 'scram-sha-256'")
	mustExec(t, r.admin, "ALTER ROLE scram PASSWORD 'new'")
	const no = `FATAL 28P01 password authentication failed for user "scram"`
	for _, c := range []struct {
		v              Verifiers
		password, want string
	}{
		{r.function, "new", "in as scram"},
		{r.function, rightPassword, no},
		{r.userlist, "new", no},
		{r.userlist, rightPassword, no},
	} {
		if got := try(c.v, c.password); got != c.want {
			t.Errorf("%T, %s: %s", c.v, c.password, got)
		}
	}
	mustExec(t, r.admin, "DROP FUNCTION fenceproxy.scram_verifier(text)")
	if got := try(r.function, "new"); !strings.HasPrefix(got, "FATAL 57P03 the proxy cannot look up SCRAM verifiers now") || strings.Contains(got, "scram_verifier") {
		t.Errorf("without the function: %s", got)
	}
}

// A leader logs in by a proof that the proxy carried, and writes.
func TestScramInTheMiddleLeads(t *testing.T) {
	r := newScramRig(t)
	pool := connect(t, r.super)
	mustExec(t, pool, "GRANT CREATE ON DATABASE d_scram TO scram")
	r.start(&r.proxy, true, r.function)
	token := r.guard.lead().Reveal()
	got := psqlQuery(t, "CREATE SCHEMA mine", r.addr, "scram", rightPassword, "d_scram", "sslmode=verify-full", "sslrootcert="+r.ca.CA,
		"channel_binding=require", "options='-c fence.election=orders -c fence.token="+token+"'")
	if got != "CREATE SCHEMA" {
		t.Error(got)
	}
	if got := psqlQuery(t, "CREATE SCHEMA other", r.addr, "scram", rightPassword, "d_scram", "sslmode=verify-full", "sslrootcert="+r.ca.CA, "channel_binding=require"); !strings.Contains(got, "ERROR") {
		t.Error(got)
	}
}

// Verifiers that hang do not hold a login for ever, nor a proxy that shuts down.
func TestScramVerifiersThatHang(t *testing.T) {
	r := newScramRig(t)
	asked := make(chan struct{}, 1)
	r.start(&r.proxy, true, hanging(asked))
	done := make(chan string, 1)
	go func() {
		done <- loginOutcome(context.Background(), r.addr, "channel_binding=require&sslmode=require", "scram", rightPassword, "d_scram")
	}()
	<-asked
	r.stop()
	if got := <-done; strings.Contains(got, "in as") {
		t.Error(got)
	}
}

type hanging chan struct{}

func (h hanging) Verifier(ctx context.Context, _ string) (string, error) {
	h <- struct{}{}
	<-ctx.Done()
	return "", ctx.Err()
}

// The hash of each kind of certificate, as libpq computes it of the proxy's and the server
// of its own: a login in the middle needs both. Where there is none, neither of them can
// bind without the proxy.
func TestScramCertificates(t *testing.T) {
	r := newScramRig(t)
	p256, p384, p521 := ecKey(t, elliptic.P256()), ecKey(t, elliptic.P384()), ecKey(t, elliptic.P521())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for alg, key := range map[x509.SignatureAlgorithm]crypto.Signer{
		x509.ECDSAWithSHA256: p256, x509.ECDSAWithSHA384: p384, x509.ECDSAWithSHA512: p521,
		x509.SHA256WithRSA: rsaKey, x509.SHA384WithRSA: rsaKey, x509.SHA512WithRSA: rsaKey,
		x509.SHA256WithRSAPSS: rsaKey, x509.SHA384WithRSAPSS: rsaKey, x509.SHA512WithRSAPSS: rsaKey,
		x509.PureEd25519: edKey,
	} {
		selfSigned(t, r.ca, alg, key).Replace(t, r.server)
		proxy := selfSigned(t, r.ca, alg, key)
		mustExec(t, r.admin, "SELECT pg_reload_conf()")
		shown := func() string {
			c := dialRaw(t, r.pg.Addr)
			c.send(sslRequest)
			c.letter()
			s, err := c.tls(&tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			return s.state().PeerCertificates[0].SignatureAlgorithm.String()
		}
		eventually(t, func() bool { return shown() == alg.String() })
		if r.stop != nil {
			r.stop()
		}
		r.serve(func(c *Config) {
			c.Verifiers = r.function
			var err error
			if c.TLS, err = tlsconf.OpenServer(tlsconf.ServerOptions{Cert: proxy.Cert, Key: proxy.Key, Protocols: ALPN()}); err != nil {
				t.Fatal(err)
			}
			if c.UpstreamTLS, err = tlsconf.OpenClient(tlsconf.ClientOptions{Mode: tlsconf.Require, Protocols: ALPN()}); err != nil {
				t.Fatal(err)
			}
		})
		binding := "channel_binding=require"
		direct := psql(t, r.pg.Addr, "scram", rightPassword, "d_scram", "sslmode=require", binding)
		if alg == x509.PureEd25519 {
			if !strings.Contains(direct, "could not find digest") {
				t.Errorf("%v: the server binds: %s", alg, direct)
			}
			binding, direct = "channel_binding=prefer", "in as scram"
		}
		if proxied := psql(t, r.addr, "scram", rightPassword, "d_scram", "sslmode=require", binding); proxied != direct || direct != "in as scram" {
			t.Errorf("%v: %s\nnot %s", alg, proxied, direct)
		}
	}
}

func ecKey(t *testing.T, c elliptic.Curve) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// selfSigned makes a certificate that is signed in a certain way. Its files are those of
// one of the authority's, replaced.
func selfSigned(t *testing.T, ca *testenv.Authority, alg x509.SignatureAlgorithm, key crypto.Signer) testenv.Cert {
	t.Helper()
	c := ca.Issue("replaced", nil, nil)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "self"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), SignatureAlgorithm: alg, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("%v: %v", alg, err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{c.Cert: {Type: "CERTIFICATE", Bytes: der}, c.Key: {Type: "PRIVATE KEY", Bytes: pk}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Where the server authenticates by certificate or by the operating system's user, it sees
// the proxy, and refuses in its own words.
func TestCertificateAndPeerSeeTheProxy(t *testing.T) {
	r := newScramRig(t)
	shown := r.ca.Issue("scram", nil, nil)
	r.serve(func(c *Config) {
		var err error
		if c.UpstreamTLS, err = tlsconf.OpenClient(tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA, Cert: shown.Cert, Key: shown.Key, Protocols: ALPN()}); err != nil {
			t.Fatal(err)
		}
	})
	direct := fmt.Sprintf("sslmode=verify-full&sslrootcert=%s&sslcert=%s&sslkey=%s", r.ca.CA, shown.Cert, shown.Key)
	for role, want := range map[string]string{"scram": "in as scram", "md5": `FATAL 28000 certificate authentication failed for user "md5"`} {
		if got := loginOutcome(t.Context(), r.pg.Addr, direct, role, "", "d_cert"); got != want {
			t.Errorf("certificate, %s, without the proxy: %s", role, got)
		}
		if got := loginOutcome(t.Context(), r.addr, "sslmode=disable", role, "", "d_cert"); got != want {
			t.Errorf("certificate, %s: %s", role, got)
		}
	}

	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, r.admin, fmt.Sprintf("CREATE ROLE %q LOGIN", me.Username))
	r.stop()
	socket := fmt.Sprintf("%s:%d", r.pg.Dir, r.pg.Port())
	r.serve(func(c *Config) { c.Upstream = socket })
	for role, want := range map[string]string{me.Username: "in as " + me.Username, "scram": `FATAL 28000 Peer authentication failed for user "scram"`} {
		if got := loginOutcome(t.Context(), r.addr, "sslmode=disable", role, rightPassword, "d_trust"); got != want {
			t.Errorf("peer, %s: %s", role, got)
		}
	}
}
