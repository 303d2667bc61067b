// Package connurl explains what is wrong with a connection string without
// repeating its secrets. The parsers of net/url and of the drivers quote pieces
// of what they could not read, and such a piece may be of the password.
package connurl

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ErrInvalid is the error of every connection string that cannot be used.
var ErrInvalid = errors.New("invalid connection string")

// Check refuses a URL with an @ behind its host: the password before it holds a slash,
// a question mark or a hash that is not percent-encoded, and the driver would take the
// rest of it for the name of a host or a database, and print it.
func Check(raw string) error {
	if _, rest, ok := strings.Cut(raw, "://"); ok {
		if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
			return fmt.Errorf("%w (%s)", ErrInvalid, hidden)
		}
	}
	return nil
}

const hidden = "not shown, it may hold a password: in scheme://user:password@host:port/…, every character of the " +
	"user and the password but letters, digits and - . _ ~ must be percent-encoded; without user and password, " +
	"more can be said about what is wrong"

// Explain returns the error for a connection string that a parser refused. It quotes
// the parser only where the string has no credentials, since one that is malformed
// does not tell where they end.
func Explain(raw string, err error) error {
	lower := strings.ToLower(raw)
	for _, sign := range []string{"@", "%40", "#", "pass", "pw", "secret"} {
		if strings.Contains(lower, sign) {
			return fmt.Errorf("%w (%s)", ErrInvalid, hidden)
		}
	}
	// user:password without a host passes for host:port, and then is no URL.
	if u, parseErr := url.Parse(raw); parseErr != nil || u.Host == "" && u.Path == "" {
		return fmt.Errorf("%w (%s)", ErrInvalid, hidden)
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}
