package pg

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols/pg/internal/scram"
)

// A Verifiers finds the SCRAM verifiers of roles. It is asked anew for each login and must
// not keep what it finds; *pgfence.Verifiers and *Userlist are some.
type Verifiers interface {
	// Verifier returns a role's verifier, SCRAM-SHA-256$…, or "" where there is none
	// for the role or no such role. The error may hold no part of a verifier.
	Verifier(ctx context.Context, role string) (string, error)
}

// verifierTimeout bounds one look-up.
const verifierTimeout = 10 * time.Second

// verify looks up the verifier of the role that logs in.
func (s *session) verify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, verifierTimeout)
	defer cancel()
	text, err := s.cfg.Verifiers.Verifier(ctx, s.start.user)
	if err != nil {
		s.log.Warn("looking up a SCRAM verifier", "role", s.start.user, "err", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.core.end(report{severity: "FATAL", code: "57P03", message: "the proxy cannot look up SCRAM verifiers now",
			detail: "It needs the role's to carry a login that is bound to its own certificate.", hint: "Its log and fenceproxy check say what is wrong."})
		return
	}
	v, err := scram.ParseVerifier(text)
	if err != nil {
		v = nil
	}
	s.mu.Lock()
	same := s.core.verified(v)
	s.mu.Unlock()
	switch {
	case same:
	case v != nil:
		s.log.Warn("the SCRAM verifier that was looked up is not the server's: the password was changed, or has expired; the login will fail", "role", s.start.user)
	case text != "":
		s.log.Warn("what was looked up is not a SCRAM verifier; the login will fail", "role", s.start.user)
	default:
		s.log.Info("no SCRAM verifier was found; the login will fail", "role", s.start.user)
	}
}

// newNonce makes one side's part of a SCRAM nonce, as long as the server's.
func newNonce() string {
	var b [18]byte
	rand.Read(b[:])
	return base64.StdEncoding.EncodeToString(b[:])
}

// A FirstVerifiers asks one after the other.
type FirstVerifiers []Verifiers

// Verifier returns the first verifier that is found. All are asked, and all must answer,
// whatever the role: neither the time nor an error says who has it.
func (f FirstVerifiers) Verifier(ctx context.Context, role string) (string, error) {
	var found string
	for _, v := range f {
		text, err := v.Verifier(ctx, role)
		if err != nil {
			return "", err
		}
		if found == "" {
			found = text
		}
	}
	return found, nil
}
