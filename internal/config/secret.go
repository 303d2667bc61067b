package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
)

// A Secret is a URL that may hold a password, or a token. Whatever prints, logs or marshals
// it writes it without: Reveal is the only way to its text.
type Secret struct {
	// reveal is a function so that no printing by reflection reaches the text.
	reveal func() string
	token  bool
}

// NewSecret makes a Secret of a URL.
func NewSecret(s string) Secret { return Secret{reveal: func() string { return s }} }

// NewToken makes a Secret of a text of which nothing may be shown.
func NewToken(s string) Secret { return Secret{reveal: func() string { return s }, token: true} }

// Reveal returns the text with its password.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// String is the URL with its passwords replaced.
func (s Secret) String() string {
	if s.token {
		return "[token]"
	}
	u, err := url.Parse(s.Reveal())
	if err != nil {
		return "[unreadable URL]"
	}
	q := u.Query()
	changed := false
	for k := range q {
		if low := strings.ToLower(k); strings.Contains(low, "pass") || strings.Contains(low, "token") || strings.Contains(low, "secret") {
			q.Set(k, "xxxxx")
			changed = true
		}
	}
	if changed {
		u.RawQuery = q.Encode()
	}
	return u.Redacted()
}

// Format writes String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Lookup finds an environment variable.
type Lookup func(name string) (string, bool)

// expand replaces each ${NAME} in s; $${ stands for ${ itself. Where s is a URL and
// NAME stands in its user name or password, the value is percent-encoded, so that
// a password may hold any character. No error holds a value.
func expand(s string, lookup Lookup) (string, error) {
	if !strings.Contains(s, "${") {
		return s, nil
	}
	from, to := userinfo(s)
	var b strings.Builder
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			b.WriteString("${")
			i += 3
		case strings.HasPrefix(s[i:], "${"):
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return "", errors.New("${ without its } (write $${ for the characters themselves)")
			}
			name := s[i+2 : i+end]
			if !isName(name) {
				return "", fmt.Errorf("${%s} is not the name of an environment variable", name)
			}
			value, ok := lookup(name)
			if !ok {
				return "", fmt.Errorf("environment variable %s is not set", name)
			}
			if from <= i && i < to {
				value = url.QueryEscape(value)
				value = strings.ReplaceAll(value, "+", "%20")
			}
			b.WriteString(value)
			i += end + 1
		default:
			b.WriteByte(s[i])
			i++
		}
	}
	return b.String(), nil
}

// userinfo returns where the user and password of a URL stand in s.
func userinfo(s string) (from, to int) {
	scheme := strings.Index(s, "://")
	if scheme < 0 {
		return 0, 0
	}
	from = scheme + 3
	authority := s[from:]
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	}
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return 0, 0
	}
	return from, from + at
}

func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
