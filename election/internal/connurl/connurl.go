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

// Explain returns the error for a connection string that parse refused. It quotes
// the parser's own words only where they cannot hold a secret: when parse refuses
// the same string once all credentials are taken out of it.
func Explain(raw string, parse func(string) error) error {
	if bare, ok := strip(raw); ok {
		if err := parse(bare); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return fmt.Errorf("%w (not shown, it may hold a password): write it as scheme://user:password@host:port/…, "+
		"with every character of the user and the password but letters, digits and - . _ ~ percent-encoded", ErrInvalid)
}

// strip returns the URL without its credentials, or false if it cannot tell what in
// it is one.
func strip(raw string) (string, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Opaque != "" {
		return "", false
	}
	u.User = nil
	bare := u.String()
	// A slash, a question mark, a hash or an ampersand in a password ends the part of
	// the URL that it is in, and what follows passes for something else. An @ that is
	// left gives that away; parameters with passwords are not trusted at all.
	for _, sign := range []string{"@", "%40", "#", "pass", "pw", "secret"} {
		if strings.Contains(strings.ToLower(bare), sign) || sign == "#" && strings.Contains(raw, sign) {
			return "", false
		}
	}
	return bare, true
}
