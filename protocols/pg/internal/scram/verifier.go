package scram

import (
	"strconv"
	"strings"
)

// A Verifier is what a server keeps of a password: it can check a proof, not make one.
type Verifier struct {
	Salt                 string // base64, as it is sent
	Iterations           int
	StoredKey, ServerKey Key
}

// ParseVerifier reads a verifier as pg_authid.rolpassword holds it:
// SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey.
func ParseVerifier(s string) (*Verifier, error) {
	rest, ok := strings.CutPrefix(s, Plain+"$")
	count, rest, ok1 := strings.Cut(rest, ":")
	salt, rest, ok2 := strings.Cut(rest, "$")
	stored, server, ok3 := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(count, 10, 32)
	if !ok || !ok1 || !ok2 || !ok3 || err != nil || n < 1 || salt == "" {
		return nil, ErrVerifier
	}
	if _, err := b64.DecodeString(salt); err != nil {
		return nil, ErrVerifier
	}
	v := &Verifier{Salt: salt, Iterations: int(n)}
	if v.StoredKey, ok = decodeKey(stored); !ok {
		return nil, ErrVerifier
	}
	if v.ServerKey, ok = decodeKey(server); !ok {
		return nil, ErrVerifier
	}
	return v, nil
}

// Clear forgets the keys.
func (v *Verifier) Clear() {
	clear(v.StoredKey[:])
	clear(v.ServerKey[:])
}
