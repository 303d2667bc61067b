package election

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"unique"
)

// MaxTokenLen is the longest token accepted, in bytes.
const MaxTokenLen = 128

// What is printed for a token.
const (
	redacted = "[token]"
	absent   = "[no token]"
)

// A Token is a holder's secret. It is random, never ordered and never a fence;
// only its Digest is stored. Whatever prints, logs or marshals a Token writes a
// placeholder: Reveal is the only way to its text. The zero Token is no token.
// Tokens are compared with ==.
//
// The text lies behind a handle, not in the struct: package fmt calls no method of
// a field that is not exported, and prints what lies in it. Of a handle it prints
// an address.
type Token struct{ secret unique.Handle[string] }

// NewToken returns a token of 256 random bits.
func NewToken() Token {
	var b [32]byte
	// crypto/rand.Read never returns an error; it ends the process instead.
	rand.Read(b[:])
	return Token{unique.Make(base64.RawURLEncoding.EncodeToString(b[:]))}
}

// ParseToken takes a token's text: 16 to MaxTokenLen characters of
// A-Z a-z 0-9 - _ . ~ and nothing else, so that it passes through connection
// strings unquoted. The error is ErrInvalidToken and never holds the text.
func ParseToken(s string) (Token, error) {
	if len(s) < 16 || len(s) > MaxTokenLen {
		return Token{}, fmt.Errorf("%w: its length is %d, must be 16 to %d", ErrInvalidToken, len(s), MaxTokenLen)
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !isAlnum(c) && c != '-' && c != '_' && c != '.' && c != '~' {
			return Token{}, fmt.Errorf("%w: character %d is not one of A-Z a-z 0-9 - _ . ~", ErrInvalidToken, i+1)
		}
	}
	return Token{unique.Make(s)}, nil
}

// IsZero reports whether t is the zero Token.
func (t Token) IsZero() bool { return t == Token{} }

// Reveal returns the secret text, for handing it to its holder or to a wire.
// It is empty for the zero Token.
func (t Token) Reveal() string {
	if t.IsZero() {
		return ""
	}
	return t.secret.Value()
}

// Digest returns the SHA-256 digest of the token.
func (t Token) Digest() Digest { return sha256.Sum256([]byte(t.Reveal())) }

// String returns a placeholder, never the secret.
func (t Token) String() string {
	if t.IsZero() {
		return absent
	}
	return redacted
}

// Format writes a placeholder for every verb, never the secret.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// LogValue returns a placeholder, never the secret.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns a placeholder, never the secret.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// A Digest is the SHA-256 digest of a token: what backends and fences store.
type Digest [sha256.Size]byte

// String returns the digest in lower-case hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what Digest.String wrote.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) {
		return Digest{}, fmt.Errorf("digest: length %d, must be %d", len(s), 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("digest: %w", err)
	}
	return d, nil
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
