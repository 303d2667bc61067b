package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// With rules, the keys that a command writes say which terms a session needs: those of all
// elections that rule one of them. What cannot be told needs every election that is named.
//
// INVARIANT: no command that writes is passed on before each key of its that may be written
// was found to be open, or ruled by an election that the session is bound for. Keys are the
// server's own word (key specs), read as the server reads them.

// A ruling is what a session of a listener with rules keeps.
type ruling struct {
	match    policy.Match
	argv     [][]byte
	keys     [][]byte
	refusals []*guard.Refusal // the last of each election, newest last

	why  string // what the last command that was refused is answered with
	seq  uint64
	said [saidKept]string // the answers that the client still waits for, by number
}

const (
	// saidKept is how many answers to refused commands are kept word for word. Of more that
	// are under way at once the client is told less.
	saidKept = 64
	// keptRefusals bounds the elections of which it is known why a bind failed.
	keptRefusals = 64
)

func (r *ruling) refused(why *guard.Refusal) {
	r.refusals = slices.DeleteFunc(r.refusals, func(old *guard.Refusal) bool { return old.Election == why.Election })
	if len(r.refusals) >= keptRefusals {
		r.refusals = slices.Delete(r.refusals, 0, 1)
	}
	r.refusals = append(r.refusals, why)
}

// forget forgets why a bind failed that has succeeded by now; without an election, why all
// did.
func (r *ruling) forget(election string) {
	if r == nil {
		return
	}
	r.refusals = slices.DeleteFunc(r.refusals, func(old *guard.Refusal) bool { return election == "" || old.Election == election })
}

// keep keeps an answer and returns its number, which stands in the substitute.
func (r *ruling) keep(line string) string {
	r.seq++
	r.said[r.seq%saidKept] = line
	return strconv.FormatUint(r.seq, 10)
}

// take returns the answer of that number.
func (r *ruling) take(number string) string {
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > r.seq || r.seq-n >= saidKept || r.said[n%saidKept] == "" {
		return errorLine(wordFenced, "write refused by the rules of this listener: this session does not hold the election of a key that it writes.")
	}
	line := r.said[n%saidKept]
	r.said[n%saidKept] = ""
	return line
}

// ruled is verdict for a whole command on a listener with rules.
func (c *core) ruled(cmd *command, raw []byte, argc int) code {
	if !c.rulesDecide(cmd) {
		return c.verdict(cmd)
	}
	if cmd == nil {
		return c.needsAll(cmd)
	}
	r := c.ruling
	r.argv = r.argv[:0]
	_, pos, _ := scanHead(raw, 0, '*')
	for range argc {
		size, at, f := scanHead(raw, pos, '$')
		if f != foundWhole {
			return c.needsAll(cmd) // cannot be: raw is whole
		}
		pos = at + int(size) + 2
		r.argv = append(r.argv, raw[at:at+int(size)])
	}
	var told bool
	r.keys, told = cmd.WrittenKeys(r.argv, r.keys[:0])
	verdict := codeNone
	if !told {
		verdict = c.needsAll(cmd)
	}
	for _, key := range r.keys {
		if verdict != codeNone {
			break
		}
		verdict = c.needsKey(cmd, key)
	}
	clear(r.argv)
	clear(r.keys)
	if cap(r.argv) > maxIdleArgs {
		r.argv, r.keys = nil, nil
	}
	if cap(r.match.Election) > maxIdleElection {
		r.match.Election = nil // of a long key
	}
	return verdict
}

// maxIdleArgs is how many arguments there may be room for between commands, and
// maxIdleElection how many bytes of an election's name.
const (
	maxIdleArgs     = 256
	maxIdleElection = 1024
)

// rulesDecide reports whether it is for the rules to say who may send the command: it
// writes, or may.
func (c *core) rulesDecide(cmd *command) bool {
	switch {
	case cmd == nil:
		return true
	case cmd.Class != policy.RedisWrite, c.cfg.publish && cmd.Publishes():
		return false
	}
	return true
}

// needsKey says why the session may not write the key, or zero.
func (c *core) needsKey(cmd *command, key []byte) code {
	r := c.ruling
	m := &r.match
	c.cfg.rules.FindKey(key, m)
	if m.Access == policy.Fenced && c.holdsElection(m.Election) {
		return codeNone
	}
	c.cfg.rules.Verify(m)
	switch m.Access {
	case policy.Open:
		if c.bound == nil && cmd.Scripts() {
			return c.scriptUnbound(cmd)
		}
		return codeNone
	case policy.Deny:
		return c.denied(c.cfg.rules.Why(m, quoteKey(key)))
	}
	return c.lacksElection(cmd, string(m.Election), "rules "+quoteKey(key))
}

// scriptUnbound refuses a script of a session that holds nothing.
//
// INVARIANT: what is open lets nobody without a token run a script: it can write what it does
// not declare.
func (c *core) scriptUnbound(cmd *command) code {
	name := strings.ToUpper(cmd.Name)
	c.ruling.why = errorLine(wordFenced, name+" refused: a script can write more than the keys that it is given, so that open keys alone do not let a session without a live token run one."+instead(cmd.Name))
	return codeWrite
}

// needsAll is needsKey for a command of which it cannot be told what it writes.
func (c *core) needsAll(cmd *command) code {
	what := "a command that the server does not know"
	if cmd != nil {
		what = strings.ToUpper(strings.ReplaceAll(nameOf(cmd), "|", " "))
		if cmd.unlisted {
			what, _, _ = strings.Cut(what, " ")
		}
	}
	// It is rare, and what it needs depends on the rules alone.
	d := c.cfg.rules.Decide([]policy.Target{{What: what}})
	if d.Deny {
		return c.denied(d.Why)
	}
	for _, e := range d.Elections {
		if !c.holdsElection([]byte(e)) {
			return c.lacksElection(cmd, e, "is needed with every other that the rules name, since it cannot be told what "+what+" writes")
		}
	}
	return codeNone
}

// denied refuses a command to everybody.
func (c *core) denied(why string) code {
	c.ruling.why = errorLine(wordNoPerm, why+".")
	return codeDenied
}

// lacksElection refuses a command for want of an election. why says what it is needed for.
func (c *core) lacksElection(cmd *command, election, why string) code {
	r := c.refusalOf(election)
	text := fmt.Sprintf("election %q %s. %s", election, why, c.refusalText(r))
	if r.Reason == guard.NoCredential {
		text = fmt.Sprintf("write refused: election %q %s, and this session has no live token of it. Present it: FENCE BIND %s <token>, or the user name '<user>;election=%s;token=...'.", election, why, election, election)
	}
	if cmd != nil {
		text += " Refused: " + strings.ToUpper(strings.ReplaceAll(nameOf(cmd), "|", " ")) + "." + instead(cmd.Name)
	}
	c.ruling.why = errorLine(refusalWord(r), text)
	if cmd == nil {
		return codeUnknown
	}
	return codeWrite
}

// refusalOf is why the session is not bound for an election.
func (c *core) refusalOf(election string) *guard.Refusal {
	if c.lead != nil && c.lead.Election() == election {
		return c.why()
	}
	for _, r := range c.ruling.refusals {
		if r.Election == election {
			return r
		}
	}
	if c.refusal.Election == election {
		return c.refusal
	}
	return &guard.Refusal{Reason: guard.NoCredential, Election: election}
}

// quoteKey makes a key fit for an answer: short, and of one line.
func quoteKey(key []byte) string {
	const most = 64
	if len(key) > most {
		return "key " + strconv.Quote(string(key[:most])) + "..."
	}
	return "key " + strconv.Quote(string(key))
}
