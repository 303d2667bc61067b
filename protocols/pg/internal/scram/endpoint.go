package scram

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
)

// EndPoint is the channel binding data tls-server-end-point (RFC 5929) of a server's
// certificate: its hash by the hash function of its signature, or by SHA-256 where that
// is MD5 or SHA-1. It is nil where there is none, as with Ed25519: neither Postgres nor libpq
// can bind to such a certificate.
func EndPoint(c *x509.Certificate) []byte {
	switch c.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1,
		x509.SHA256WithRSA, x509.SHA256WithRSAPSS, x509.DSAWithSHA256, x509.ECDSAWithSHA256:
		h := sha256.Sum256(c.Raw)
		return h[:]
	case x509.SHA384WithRSA, x509.SHA384WithRSAPSS, x509.ECDSAWithSHA384:
		h := sha512.Sum384(c.Raw)
		return h[:]
	case x509.SHA512WithRSA, x509.SHA512WithRSAPSS, x509.ECDSAWithSHA512:
		h := sha512.Sum512(c.Raw)
		return h[:]
	}
	return nil
}
