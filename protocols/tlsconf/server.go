package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// ServerOptions are the options of OpenServer.
type ServerOptions struct {
	// Cert and Key are PEM files: the certificate with its chain, and its private key.
	Cert, Key string
	// Required refuses clients that do not use TLS.
	Required bool
	// ClientCA is a PEM file of the authorities that sign clients' certificates.
	ClientCA string
	// ClientCerts says what is wanted of clients' certificates; empty means none.
	ClientCerts ClientCerts
	// ClientUser wants the user that a client logs in as to be the common name of its
	// certificate, which is then required.
	ClientUser bool
	// Protocols are offered by ALPN. A client that offers others only is refused; one
	// that offers none is not.
	Protocols []string
}

// A Server is the TLS of the leg towards clients.
type Server struct {
	o ServerOptions
	l live[Served]
}

// A Served is the TLS of one handshake. It is not changed any more.
type Served struct {
	Config *tls.Config
	// Leaf is the certificate that the client is shown.
	Leaf *x509.Certificate
	// ClientCAs are the authorities of clients, in the order of the file.
	ClientCAs []*x509.Certificate
}

// Check says what does not fit together, without looking at the files.
func (o ServerOptions) Check() error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", ErrOptions, why) }
	switch c := o.ClientCerts; {
	case o.Cert == "" || o.Key == "":
		return bad("a certificate and its key are needed")
	case c != "" && c != NoClientCerts && c != RequestClientCerts && c != RequireClientCerts:
		return bad(fmt.Sprintf("client certificates cannot be %q", c))
	case (c == RequestClientCerts || c == RequireClientCerts) && o.ClientCA == "":
		return bad("client certificates need the authorities that sign them: set client_ca")
	case (c == "" || c == NoClientCerts) && o.ClientCA != "":
		return bad("authorities of client certificates are named, and the certificates not asked for")
	case o.ClientUser && c != RequireClientCerts:
		return bad("users are told by certificate only where that is required")
	}
	return nil
}

// OpenServer reads the files.
func OpenServer(o ServerOptions) (*Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	s := &Server{o: o}
	s.l = live[Served]{paths: []string{o.Cert, o.Key, o.ClientCA}, build: s.build}
	if _, err := s.l.reload(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) build(files [][]byte) (*Served, error) {
	pair, err := keyPair(s.o.Cert, s.o.Key, files[0], files[1])
	if err != nil {
		return nil, err
	}
	v := &Served{Leaf: pair.Leaf}
	v.Config = &tls.Config{
		MinVersion:   MinVersion,
		Certificates: []tls.Certificate{*pair},
		NextProtos:   s.o.Protocols,
		// As the Postgres server. Besides, each session proves its certificate anew.
		SessionTicketsDisabled: true,
	}
	if s.o.ClientCA != "" {
		if v.Config.ClientCAs, v.ClientCAs, err = authorities(s.o.ClientCA, files[2]); err != nil {
			return nil, err
		}
		// Whether there has to be one is asked after the handshake, when the client
		// can be told in its own protocol.
		v.Config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return v, nil
}

// Now is what a handshake that begins now has to use.
func (s *Server) Now() *Served { return s.l.now.Load() }

// Options are those that it was opened with.
func (s *Server) Options() ServerOptions { return s.o }

// Reload reads the files again. After an error the old ones stay in use.
func (s *Server) Reload() (changed bool, err error) { return s.l.reload() }

// String names it, for logs.
func (s *Server) String() string { return s.o.Cert }

// Leaf is the certificate in use.
func (s *Server) Leaf() *x509.Certificate { return s.Now().Leaf }
