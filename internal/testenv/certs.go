package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// An Authority signs the certificates of a test.
type Authority struct {
	// CA is the file of its own certificate.
	CA string
	// Cert is that certificate.
	Cert *x509.Certificate

	t   testing.TB
	key *ecdsa.PrivateKey
	dir string
}

// A Cert is a certificate with its key, in files that the servers of tests may read.
type Cert struct {
	// Cert and Key are the files.
	Cert, Key string
	Leaf      *x509.Certificate
}

// NewAuthority makes an authority whose files live as long as the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir, err := servers.NewDir("certs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &Authority{t: t, dir: dir}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: Name(t, "authority-")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.CA = filepath.Join(a.dir, "ca.crt")
	writePEM(t, a.CA, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate for a name and for hosts (names and addresses); change, if
// not nil, changes it before it is signed.
func (a *Authority) Issue(name string, hosts []string, change func(*x509.Certificate)) Cert {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	var c Cert
	if c.Leaf, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	base := filepath.Join(a.dir, Name(a.t, "cert"))
	c.Cert, c.Key = base+".crt", base+".key"
	writePEM(a.t, c.Cert, "CERTIFICATE", der)
	pk, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, c.Key, "PRIVATE KEY", pk)
	return c
}

// Replace writes the files of c over those of old, as a renewal does.
func (c Cert) Replace(t testing.TB, old Cert) {
	t.Helper()
	for from, to := range map[string]string{c.Cert: old.Cert, c.Key: old.Key} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// writePEM writes a file that the servers of tests may read, and that they and libpq
// find private enough for a key.
func writePEM(t testing.TB, path, typ string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // Postgres runs as nobody then
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
}
