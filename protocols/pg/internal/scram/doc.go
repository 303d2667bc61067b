// Package scram is SCRAM-SHA-256 (RFC 5802, 7677) with and without channel binding to the
// server's certificate (RFC 5929), from both ends, as Postgres speaks it.
//
// It knows no password: the server's end needs a verifier only, and the client's end a
// ClientKey, which the server's end learns from a proof that verified. Whoever stands between
// a client and a server can so prove to the server what the client proved to him.
//
// It promises that the server's end gives a key out only when nonce, channel binding and proof
// all hold, and that what is secret is compared in constant time. It does no I/O and makes
// no randomness. It does not normalise passwords, and keeps no secret that it is not given.
package scram

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
)

// The mechanisms.
const (
	Plain = "SCRAM-SHA-256"
	Plus  = "SCRAM-SHA-256-PLUS"
)

// Errors, for errors.Is.
var (
	// ErrMalformed: the message is not what SCRAM says should come.
	ErrMalformed = errors.New("malformed SCRAM message")
	// ErrNonce: the message belongs to another exchange.
	ErrNonce = errors.New("the SCRAM nonce does not match")
	// ErrBinding: the message is bound to another channel.
	ErrBinding = errors.New("SCRAM channel binding check failed")
	// ErrProof: the client does not know the password.
	ErrProof = errors.New("the SCRAM proof is wrong")
	// ErrSignature: the server does not know the verifier.
	ErrSignature = errors.New("the SCRAM signature of the server is wrong")
	// ErrVerifier: a verifier cannot be understood. The error never holds its text.
	ErrVerifier = errors.New("not a SCRAM-SHA-256 verifier")
)

const endPoint = "p=tls-server-end-point,,"

// A Key is a ClientKey, a StoredKey or a ServerKey.
type Key [sha256.Size]byte

var b64 = base64.StdEncoding.Strict()

// decodeKey decodes a key, a proof or a signature.
func decodeKey(s string) (k Key, ok bool) {
	if len(s) != b64.EncodedLen(len(k)) {
		return k, false
	}
	b, err := b64.DecodeString(s)
	if err != nil || len(b) != len(k) { // 44 characters without padding are 33 bytes
		return Key{}, false
	}
	return Key(b), true
}

// sign is HMAC of the parts of an AuthMessage, put together with commas.
func sign(key *Key, first, challenge, final string) (k Key) {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(first + "," + challenge + "," + final))
	h.Sum(k[:0])
	return k
}

func (k *Key) xor(other *Key) {
	for i := range k {
		k[i] ^= other[i]
	}
}

// stored is the StoredKey that belongs to a ClientKey.
func (k *Key) stored() Key { return sha256.Sum256(k[:]) }

// attributes reads the attributes of a message one by one, as the server does.
type attributes string

// next takes one attribute, whose value may be empty and ends before a comma.
func (a *attributes) next() (name byte, value string, ok bool) {
	s := string(*a)
	if len(s) < 2 || s[1] != '=' || (s[0] < 'a' || s[0] > 'z') && (s[0] < 'A' || s[0] > 'Z') {
		return 0, "", false
	}
	for i := 2; i < len(s); i++ {
		if s[i] == ',' {
			*a = attributes(s[i+1:])
			return s[0], s[2:i], true
		}
	}
	*a = ""
	return s[0], s[2:], true
}

// take takes the attribute of that name.
func (a *attributes) take(name byte) (value string, ok bool) {
	n, value, ok := a.next()
	return value, ok && n == name
}

// printable reports whether s may be a nonce.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e || s[i] == ',' {
			return false
		}
	}
	return true
}
