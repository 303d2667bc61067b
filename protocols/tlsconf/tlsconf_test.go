package tlsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestOptionsThatDoNotFit(t *testing.T) {
	for name, o := range map[string]interface{ Check() error }{
		"nothing":                     ServerOptions{},
		"no key":                      ServerOptions{Cert: "c"},
		"odd word":                    ServerOptions{Cert: "c", Key: "k", ClientCA: "a", ClientCerts: "verify"},
		"nobody signs":                ServerOptions{Cert: "c", Key: "k", ClientCerts: RequireClientCerts},
		"authorities for nothing":     ServerOptions{Cert: "c", Key: "k", ClientCA: "a"},
		"users by what may be absent": ServerOptions{Cert: "c", Key: "k", ClientCA: "a", ClientCerts: RequestClientCerts, ClientUser: true},
		"no mode":                     ClientOptions{},
		"odd mode":                    ClientOptions{Mode: "verify"},
		"half a pair":                 ClientOptions{Mode: Require, Cert: "c"},
		"a certificate without TLS":   ClientOptions{Mode: Disable, Cert: "c", Key: "k"},
		"prefer with authorities":     ClientOptions{Mode: Prefer, CA: "a"},
		"verify-ca of anybody":        ClientOptions{Mode: VerifyCA},
		"verify-ca of the system":     ClientOptions{Mode: VerifyCA, CA: SystemCA},
		"a name not looked at":        ClientOptions{Mode: VerifyCA, CA: "a", ServerName: "n"},
	} {
		if err := o.Check(); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Files that cannot be used: the error names the file and holds nothing of a key.
func TestFilesThatCannotBeUsed(t *testing.T) {
	a := testenv.NewAuthority(t)
	good, other := a.Issue("x", []string{"x"}, nil), a.Issue("y", []string{"y"}, nil)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := os.ReadFile(good.Key)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.Split(string(key), "\n")[1]
	empty, odd := write("empty", ""), write("odd", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	locked := write("locked", string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})))
	old := write("old", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("x")})))
	cut := write("cut", string(key[:len(key)/2]))
	big := write("big", strings.Repeat("x", maxFile+1))
	for name, c := range map[string]struct{ cert, key, ca, want string }{
		"no certificate":     {"nonesuch", good.Key, a.CA, "nonesuch"},
		"empty certificate":  {empty, good.Key, a.CA, empty},
		"odd certificate":    {odd, good.Key, a.CA, odd},
		"no key":             {good.Cert, dir, a.CA, dir + " is not a regular file"},
		"another's key":      {good.Cert, other.Key, a.CA, other.Key},
		"the key twice":      {good.Key, good.Key, a.CA, good.Key},
		"cut key":            {good.Cert, cut, a.CA, cut},
		"encrypted key":      {good.Cert, locked, a.CA, "pass phrase"},
		"encrypted, old":     {good.Cert, old, a.CA, "pass phrase"},
		"large":              {big, good.Key, a.CA, "larger than"},
		"no authorities":     {good.Cert, good.Key, empty, empty},
		"a key as authority": {good.Cert, good.Key, good.Key, good.Key},
	} {
		_, err := OpenServer(ServerOptions{Cert: c.cert, Key: c.key, ClientCA: c.ca, ClientCerts: RequireClientCerts})
		_, err2 := OpenClient(ClientOptions{Mode: VerifyCA, Cert: c.cert, Key: c.key, CA: c.ca})
		for _, err := range []error{err, err2} {
			if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// handshake connects the two and returns the client's error.
func handshake(t *testing.T, s *tls.Config, c *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		theirs, err := l.Accept()
		if err != nil {
			return
		}
		_ = tls.Server(theirs, s).HandshakeContext(t.Context())
		_ = theirs.Close()
	}()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	err = tls.Client(ours, c).HandshakeContext(t.Context())
	_ = ours.Close()
	<-served
	return err
}

// Every mode that verifies, against certificates of every kind.
func TestVerify(t *testing.T) {
	a, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	past := func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) }
	client := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	for name, c := range map[string]struct {
		cert     testenv.Cert
		host     string
		ca, full bool // whether verify-ca and verify-full take it
	}{
		"right":                     {a.Issue("x", []string{"db.example"}, nil), "db.example", true, true},
		"right, upper case":         {a.Issue("x", []string{"db.example"}, nil), "DB.example", true, true},
		"a wildcard":                {a.Issue("x", []string{"*.example"}, nil), "db.example", true, true},
		"a wildcard, too deep":      {a.Issue("x", []string{"*.example"}, nil), "a.db.example", true, false},
		"another name":              {a.Issue("x", []string{"db.example"}, nil), "db2.example", true, false},
		"by address":                {a.Issue("x", []string{"192.0.2.1"}, nil), "192.0.2.1", true, true},
		"another address":           {a.Issue("x", []string{"192.0.2.1"}, nil), "192.0.2.2", true, false},
		"by IPv6 address":           {a.Issue("x", []string{"2001:db8::1"}, nil), "2001:db8::1", true, true},
		"common name":               {a.Issue("db.example", nil, nil), "db.example", true, true},
		"common name, an address":   {a.Issue("192.0.2.1", nil, nil), "192.0.2.1", true, true},
		"common name, another":      {a.Issue("db.example", nil, nil), "db2.example", true, false},
		"common name beside others": {a.Issue("db.example", []string{"x.example"}, nil), "db.example", true, false},
		"no name at all":            {a.Issue("", nil, nil), "db.example", true, false},
		"no host":                   {a.Issue("", nil, nil), "", true, false},
		"expired":                   {a.Issue("x", []string{"db.example"}, past), "db.example", false, false},
		"a client's":                {a.Issue("x", []string{"db.example"}, client), "db.example", false, false},
		"an unknown authority's":    {other.Issue("x", []string{"db.example"}, nil), "db.example", false, false},
	} {
		s, err := OpenServer(ServerOptions{Cert: c.cert.Cert, Key: c.cert.Key})
		if err != nil {
			t.Fatal(err)
		}
		for mode, want := range map[Mode]bool{Require: true, VerifyCA: c.ca, VerifyFull: c.full} {
			o := ClientOptions{Mode: mode, CA: a.CA}
			if mode == Require {
				o.CA = ""
			}
			client, err := OpenClient(o)
			if err != nil {
				t.Fatal(err)
			}
			err = handshake(t, s.Now().Config, client.Config(c.host))
			if want != (err == nil) || err != nil && !errors.Is(err, ErrUntrusted) {
				t.Errorf("%s, %s: %v", name, mode, err)
			}
		}
	}
}

// A renewal is taken up whole: while the files do not fit together, the old ones serve.
func TestReload(t *testing.T) {
	a := testenv.NewAuthority(t)
	cert, next := a.Issue("one", []string{"x"}, nil), a.Issue("two", []string{"x"}, nil)
	s, err := OpenServer(ServerOptions{Cert: cert.Cert, Key: cert.Key})
	if err != nil {
		t.Fatal(err)
	}
	reload := func(want bool, fails bool, name string) {
		t.Helper()
		before := s.Now()
		changed, err := s.Reload()
		if changed != want || (err != nil) != fails || s.Leaf().Subject.CommonName != name {
			t.Errorf("%v, %v: %s", changed, err, s.Leaf().Subject)
		}
		if !want && s.Now() != before {
			t.Error("changed all the same")
		}
	}
	reload(false, false, "one")
	half := testenv.Cert{Cert: next.Cert, Key: cert.Key}
	half.Replace(t, cert) // the new certificate with the old key
	reload(false, true, "one")
	next.Replace(t, cert)
	reload(true, false, "two")
	if err := os.Remove(cert.Key); err != nil {
		t.Fatal(err)
	}
	reload(false, true, "two")
}

// Watch looks every so often, says once what is wrong, and again when it is asked.
func TestWatch(t *testing.T) {
	a := testenv.NewAuthority(t)
	cert := a.Issue("one", []string{"x"}, nil)
	s, err := OpenServer(ServerOptions{Cert: cert.Cert, Key: cert.Key})
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenClient(ClientOptions{Mode: VerifyFull, CA: a.CA})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log strings.Builder
		now := make(chan os.Signal)
		done := make(chan struct{})
		go func() {
			defer close(done)
			Watch(ctx, 0, now, slog.New(slog.NewTextHandler(&log, nil)), s, c)
		}()
		count := func(broken, read int) {
			t.Helper()
			synctest.Wait()
			if n := strings.Count(log.String(), "the old ones stay in use"); n != broken {
				t.Errorf("%d times broken, want %d", n, broken)
			}
			if n := strings.Count(log.String(), "read again"); n != read {
				t.Errorf("%d times read, want %d", n, read)
			}
		}
		time.Sleep(time.Minute)
		count(0, 0)
		a.Issue("two", []string{"x"}, nil).Replace(t, cert)
		time.Sleep(DefaultEvery)
		count(0, 1)
		if err := os.WriteFile(cert.Cert, nil, 0o600); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * DefaultEvery)
		count(1, 1)
		now <- os.Interrupt
		count(2, 1)
		a.Issue("three", []string{"x"}, nil).Replace(t, cert)
		time.Sleep(DefaultEvery)
		count(2, 2)
		cancel()
		<-done
	})
}
