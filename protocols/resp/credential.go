package resp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// splitUser takes a credential out of a user name of the form
// "name;election=...;token=...", where each part but the token may be missing. It
// returns the user name for the server, and nil where there is no credential. With rules
// there may be several pairs.
//
// INVARIANT: what is returned as the user never holds a token's text, mistyped ones
// included: a name with a semicolon or a blank in it, or that speaks of a token, is
// never sent whole. (The servers allow no blanks in a user's name.)
func (c *core) splitUser(s string) (user string, cred *credential) {
	user, rest := s, ""
	var bad error
	switch i := strings.IndexAny(s, "; \t"); {
	case isCredentialPart(s):
		user, rest = "", s
	case i >= 0:
		user, rest = s[:i], s[i+1:]
		if s[i] != ';' {
			bad = errUserName
		}
	case !strings.Contains(strings.ToLower(s), "token="):
		return s, nil
	}
	if strings.Contains(strings.ToLower(user), "token=") {
		user, bad = "", errUserName
	}
	if user == "" {
		user = "default"
	}
	pairs := []presented{{}}
	for part := range strings.SplitSeq(rest, ";") {
		key, value, _ := strings.Cut(part, "=")
		last := &pairs[len(pairs)-1]
		if c.ruling != nil && last.has(key) && len(pairs) < maxTerms {
			pairs = append(pairs, presented{})
			last = &pairs[len(pairs)-1]
		}
		switch {
		case key == "election" && last.election == "":
			last.election = strings.Clone(value) // and not the token's text with it
		case key == "token" && last.token == "":
			last.token, last.tokens = value, true
		default:
			bad = fmt.Errorf("%w%s", errUserName, strayPart(key, part))
		}
	}
	for i := len(pairs) - 1; i >= 0; i-- {
		one := c.pair(pairs[i], bad)
		one.then = cred
		cred = one
	}
	return user, cred
}

// presented is an election and a token as they stand in a user name.
type presented struct {
	election, token string
	tokens          bool // it has a token, which may be empty
}

// has reports whether a second one of that key begins another pair.
func (p *presented) has(key string) bool {
	return key == "election" && p.election != "" || key == "token" && p.tokens
}

// pair is the credential in a pair, or why there is none.
func (c *core) pair(p presented, bad error) *credential {
	cred := c.credential(p.election, p.token)
	switch {
	case bad == nil && !p.tokens:
		bad = errNoToken
	case bad == nil && p.token == "":
		bad = errEmptyToken
	}
	if bad != nil {
		cred.refusal = &guard.Refusal{Reason: guard.InvalidCredential, Election: cred.election, Detail: bad.Error()}
	}
	return cred
}

var errUserName = errors.New(`after the user name, each of ";election=" and ";token=" may stand once, and nothing else`)

var (
	errNoToken    = errors.New(`it has no ";token=..."`)
	errEmptyToken = errors.New("the token is empty")
)

// strayPart names a part that does not belong into a user name.
//
// INVARIANT: no text that may be a token's is told: a token is longer, and a piece of
// one is hardly in front of "=".
func strayPart(key, part string) string {
	if key == part || key == "" || len(key) > 10 || key == "election" || key == "token" ||
		strings.ContainsFunc(key, func(r rune) bool { return r|0x20 < 'a' || r|0x20 > 'z' }) {
		return ""
	}
	return fmt.Sprintf(` (found ";%s=")`, key)
}

func isCredentialPart(s string) bool {
	return strings.HasPrefix(s, "election=") || strings.HasPrefix(s, "token=")
}

// credential checks what the client presented. An empty election means the listener's
// default.
func (c *core) credential(electionID, token string) *credential {
	if electionID == "" {
		electionID = c.cfg.election
	}
	if electionID == "" {
		return &credential{refusal: &guard.Refusal{Reason: guard.InvalidCredential,
			Detail: "it names no election, and this listener has no default one"}}
	}
	if err := election.CheckID(electionID); err != nil {
		return &credential{refusal: &guard.Refusal{Reason: guard.InvalidCredential, Err: err,
			Detail: "the election id must be 1 to 128 characters of A-Z a-z 0-9 . _ - : /"}}
	}
	cred := &credential{election: electionID}
	t, err := election.ParseToken(token)
	switch {
	case token == "":
		cred.refusal = &guard.Refusal{Reason: guard.InvalidCredential, Election: electionID, Err: err, Detail: errEmptyToken.Error()}
	case err != nil:
		cred.refusal = &guard.Refusal{Reason: guard.InvalidCredential, Election: electionID, Err: err,
			Detail: fmt.Sprintf("the token must be 16 to %d characters of A-Z a-z 0-9 - _ . ~", election.MaxTokenLen)}
	case !c.cfg.serves(electionID):
		cred.refusal = &guard.Refusal{Reason: guard.WrongElection, Election: electionID}
	}
	cred.token = t
	return cred
}
