package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
)

// SystemCA as CA means the authorities that the system trusts.
const SystemCA = "system"

// ClientOptions are the options of OpenClient.
type ClientOptions struct {
	// Mode is required.
	Mode Mode
	// CA is a PEM file of the authorities that sign servers' certificates, or SystemCA,
	// which is for VerifyFull only and its default. Require with CA is VerifyCA, as in
	// libpq.
	CA string
	// Cert and Key are PEM files of the certificate that is shown to a server that asks.
	Cert, Key string
	// ServerName is the name that VerifyFull looks for; empty means the host.
	ServerName string
	// Protocols are offered by ALPN.
	Protocols []string
}

// A Client is the TLS of the leg towards a server.
type Client struct {
	o ClientOptions
	l live[clientFiles]
}

type clientFiles struct {
	roots   *x509.CertPool // nil means the system's
	certs   []tls.Certificate
	leaf    *x509.Certificate
	rootsOf []*x509.Certificate
}

// Check says what does not fit together, without looking at the files.
func (o ClientOptions) Check() error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", ErrOptions, why) }
	switch {
	case !slices.Contains(Modes, o.Mode):
		return bad(fmt.Sprintf("%q is not a mode", o.Mode))
	case (o.Cert == "") != (o.Key == ""):
		return bad("a certificate and its key belong together")
	case o.Mode == Disable && o.Cert != "":
		return bad("without TLS no certificate is shown")
	case o.CA != "" && (o.Mode == Disable || o.Mode == Allow || o.Mode == Prefer):
		return bad("mode " + string(o.Mode) + " verifies nothing: authorities are for require, verify-ca and verify-full")
	case o.CA == SystemCA && o.Mode != VerifyFull:
		return bad("anybody may have a certificate of the system's authorities: trusting them takes verify-full")
	case o.CA == "" && o.Mode == VerifyCA:
		return bad("verify-ca needs the authorities to trust")
	case o.ServerName != "" && o.Mode != VerifyFull:
		return bad("mode " + string(o.Mode) + " does not look at the server's name: that takes verify-full")
	}
	return nil
}

// OpenClient reads the files.
func OpenClient(o ClientOptions) (*Client, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Mode == Require && o.CA != "" {
		o.Mode = VerifyCA
	}
	if o.CA == "" && o.Mode == VerifyFull {
		o.CA = SystemCA
	}
	c := &Client{o: o}
	ca := o.CA
	if ca == SystemCA {
		ca = ""
	}
	c.l = live[clientFiles]{paths: []string{ca, o.Cert, o.Key}, build: c.build}
	if _, err := c.l.reload(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Client) build(files [][]byte) (*clientFiles, error) {
	v := &clientFiles{}
	var err error
	if files[0] != nil {
		if v.roots, v.rootsOf, err = authorities(c.o.CA, files[0]); err != nil {
			return nil, err
		}
	}
	if files[1] != nil {
		pair, err := keyPair(c.o.Cert, c.o.Key, files[1], files[2])
		if err != nil {
			return nil, err
		}
		v.certs, v.leaf = []tls.Certificate{*pair}, pair.Leaf
	}
	return v, nil
}

// Mode is how connections are encrypted; a nil Client's is Disable.
func (c *Client) Mode() Mode {
	if c == nil {
		return Disable
	}
	return c.o.Mode
}

// Config is the configuration of one handshake with the host, a name or an address.
func (c *Client) Config(host string) *tls.Config {
	v := c.l.now.Load()
	name := host
	if c.o.ServerName != "" {
		name = c.o.ServerName
	}
	t := &tls.Config{
		MinVersion:   MinVersion,
		ServerName:   name, // sent where it is a name, not an address
		Certificates: v.certs,
		NextProtos:   c.o.Protocols,
		// crypto/tls verifies all or nothing; verify-ca, and certificates that have
		// but a common name, are verified below, and nothing is where the mode says so.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
	}
	if len(v.certs) > 0 {
		// The one certificate, whatever authorities the server names: as libpq.
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &v.certs[0], nil }
	}
	if mode := c.o.Mode; mode == VerifyCA || mode == VerifyFull {
		// INVARIANT: called in every handshake, before anything is sent or believed;
		// sessions are never resumed, as no cache of them is set.
		t.VerifyConnection = func(s tls.ConnectionState) error {
			if err := verify(s.PeerCertificates, v.roots); err != nil || mode == VerifyCA {
				return err
			}
			if err := named(s.PeerCertificates[0]).VerifyHostname(name); err != nil {
				return fmt.Errorf("%w: %w", ErrUntrusted, err)
			}
			return nil
		}
	}
	return t
}

// verify checks a server's chain.
func verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: there is none", ErrUntrusted)
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return nil
}

// named is the certificate with its common name as its one name where it has no other,
// which is how many certificates of Postgres servers are made and what libpq takes.
func named(c *x509.Certificate) *x509.Certificate {
	if len(c.DNSNames) > 0 || len(c.IPAddresses) > 0 || len(c.EmailAddresses) > 0 || len(c.URIs) > 0 || c.Subject.CommonName == "" {
		return c
	}
	n := *c
	if ip := net.ParseIP(c.Subject.CommonName); ip != nil {
		n.IPAddresses = []net.IP{ip}
	} else {
		n.DNSNames = []string{c.Subject.CommonName}
	}
	return &n
}

// Leaf is the certificate that is shown to servers; nil where there is none.
func (c *Client) Leaf() *x509.Certificate { return c.l.now.Load().leaf }

// CAs are the authorities of the file; none where the system's are trusted, or nobody is.
func (c *Client) CAs() []*x509.Certificate { return c.l.now.Load().rootsOf }

// Reload reads the files again. After an error the old ones stay in use.
func (c *Client) Reload() (changed bool, err error) { return c.l.reload() }

// String names it, for logs.
func (c *Client) String() string {
	switch {
	case c.o.Cert != "":
		return c.o.Cert
	case c.o.CA != "":
		return c.o.CA
	}
	return string(c.o.Mode)
}
