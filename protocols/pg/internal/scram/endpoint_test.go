package scram

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"testing"
)

func TestEndPoint(t *testing.T) {
	raw := []byte("certificate")
	s256, s384, s512 := sha256.Sum256(raw), sha512.Sum384(raw), sha512.Sum512(raw)
	for alg, want := range map[x509.SignatureAlgorithm][]byte{
		x509.MD5WithRSA: s256[:], x509.SHA1WithRSA: s256[:], x509.ECDSAWithSHA1: s256[:],
		x509.SHA256WithRSA: s256[:], x509.SHA384WithRSA: s384[:], x509.SHA512WithRSA: s512[:],
		x509.SHA256WithRSAPSS: s256[:], x509.SHA384WithRSAPSS: s384[:], x509.SHA512WithRSAPSS: s512[:],
		x509.ECDSAWithSHA256: s256[:], x509.ECDSAWithSHA384: s384[:], x509.ECDSAWithSHA512: s512[:],
		x509.PureEd25519: nil, x509.UnknownSignatureAlgorithm: nil,
	} {
		if got := EndPoint(&x509.Certificate{Raw: raw, SignatureAlgorithm: alg}); !bytes.Equal(got, want) {
			t.Errorf("%v: %x", alg, got)
		}
	}
}
