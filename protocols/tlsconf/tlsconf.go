// Package tlsconf keeps the TLS of a proxy's two legs: towards its clients (Server) and
// towards the server behind it (Client), with certificates and keys from files that may
// be replaced while the proxy runs.
//
// It promises that a new set of files is used for every handshake that begins after it
// was read, that files which do not fit together change nothing, and that no error holds
// anything of a private key.
//
// It does not end connections whose certificates were replaced, does not look at
// revocation, and takes no key that is encrypted with a pass phrase.
package tlsconf

import (
	"crypto/tls"
	"errors"
)

// MinVersion is the oldest version spoken on either leg.
const MinVersion = tls.VersionTLS12

// Errors, for errors.Is.
var (
	// ErrFile: a file cannot be read, or holds something else than it should.
	ErrFile = errors.New("a TLS file cannot be used")
	// ErrOptions: the options contradict each other.
	ErrOptions = errors.New("the TLS options do not fit together")
	// ErrUntrusted: the server's certificate was not accepted.
	ErrUntrusted = errors.New("the server's certificate is not trusted")
)

// A Mode says how the connection to a server is encrypted and whom it trusts; the words
// are those of libpq's sslmode.
type Mode string

// The modes, weakest first.
const (
	Disable    Mode = "disable"     // never TLS
	Allow      Mode = "allow"       // TLS only where the server refuses anything else
	Prefer     Mode = "prefer"      // TLS where the server offers it
	Require    Mode = "require"     // TLS; with CA, as VerifyCA
	VerifyCA   Mode = "verify-ca"   // and a certificate of a trusted authority
	VerifyFull Mode = "verify-full" // and for the server's name
)

// Modes are all of them.
var Modes = []Mode{Disable, Allow, Prefer, Require, VerifyCA, VerifyFull}

// ClientCerts says what a Server wants of its clients' certificates.
type ClientCerts string

// What is wanted of client certificates.
const (
	// NoClientCerts asks for none.
	NoClientCerts ClientCerts = "none"
	// RequestClientCerts asks; a client without one is served, a bad one is not.
	RequestClientCerts ClientCerts = "request"
	// RequireClientCerts serves nobody without one.
	RequireClientCerts ClientCerts = "require"
)
