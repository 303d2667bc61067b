package pg

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A refusal in the middle of a stream must leave the server in the state that a failed
// statement leaves it in. So the refused message is replaced by one whose text is sure
// to be a syntax error, an identifier made of the session's nonce, a code and a name;
// and the server's error, wherever and whenever it comes, is rewritten on its way back.
const markerPrefix = "fenceproxy_"

// A code says why a message was refused. Codes below codeOwn are policy.SQLReason.
type code uint8

const (
	codeOwn           code = 20 + iota
	codeFunctionCall       // a FunctionCall message
	codeEncoding           // bytes above 127 in an encoding that hides ASCII in them
	codeBackslash          // a backslash while standard_conforming_strings is off
	_                      // was: not a well-formed message
	codePrepare            // PREPARE TRANSACTION
	codeFenceMixed         // SET fence.… beside other statements
	codeFenceMisused       // SET LOCAL fence.…, RESET fence.…, an unknown fence.…
	codeFenceInBlock       // SET fence.… in a transaction block
	codeFencePipeline      // SET fence.… behind messages without a Sync
	codeFenceBound         // SET fence.… on a session that is bound to something else
	codeCredential         // the credential that SET fence.… completed was refused
	codeUninspected        // too long to be looked through for PREPARE TRANSACTION
	codeTwoWays            // a backslash where a function may have changed what it does
	codeReplication        // a replication command that writes
	codeReplicates         // SET fence.… on a replication connection
	codeRuled              // the rules do not let the session; ruling.why says why

	lastCode = codeRuled
)

// marker is the text that replaces a refused statement: at most 55 bytes, shorter than
// the server cuts identifiers at.
func (c *core) marker(why code, what string) string {
	return fmt.Sprintf("%s%02d_%s", c.nonce, why, what)
}

// refusedError finds a marker in the body of an ErrorResponse and says what it stood for.
func (c *core) refusedError(body []byte) (report, bool) {
	at := bytes.Index(body, []byte(c.nonce))
	if at < 0 {
		return report{}, false
	}
	rest := body[at+len(c.nonce):]
	if len(rest) < 3 || rest[2] != '_' {
		return report{}, false
	}
	why := code(rest[0]-'0')*10 + code(rest[1]-'0')
	end := 3
	for end < len(rest) && (rest[end] == '_' || 'a' <= rest[end] && rest[end] <= 'z' || '0' <= rest[end] && rest[end] <= '9') {
		end++
	}
	return c.explain(why, string(rest[3:end])), true
}

// explain says to the client what a code means.
func (c *core) explain(why code, what string) report {
	own := func(state, message, detail, hint string) report {
		return report{severity: "ERROR", code: state, message: message, detail: detail, hint: hint}
	}
	words := strings.ToUpper(strings.ReplaceAll(what, "_", " "))
	switch why {
	case codePrepare:
		return notAllowed(c.boundTo(), "PREPARE TRANSACTION: a prepared transaction would outlive the session that is fenced, and could be committed by a stale leader",
			"Commit in one phase; or, where that risk is accepted, set prepared_transactions: allow in the listener's configuration.")
	case codeUninspected:
		return notAllowed(c.boundTo(), fmt.Sprintf("the statement is longer than %d bytes, so it cannot be searched for PREPARE TRANSACTION, which this server allows", c.maxInspect),
			"Pass long values as parameters, or by COPY.")
	case codeReplication:
		return notAllowed("", strings.ToUpper(what)+": a replication connection through this proxy only reads, with temporary slots or those that exist, and to the client",
			"A leader makes and drops slots in an ordinary session: SELECT pg_create_physical_replication_slot('...').")
	case codeReplicates:
		return notAllowed("", "a replication connection reads, and is never bound", "Present the token on an ordinary connection.")
	case codeFenceMixed:
		return own("FP010", "credential refused: SET fence.election and SET fence.token may not stand beside other statements",
			"The credential is settled before the next message, and the others would run before it.", "Send them in a message of their own.")
	case codeFenceMisused:
		return own("FP010", "credential refused: only SET fence.election = '...' and SET fence.token = '...' are understood",
			"SET LOCAL, RESET, set_config, other parameters named fence.*, and texts too long to be read are not.", "A session cannot give its credential back; close the connection instead.")
	case codeFenceInBlock:
		return own("25001", "SET fence.election and SET fence.token cannot run inside a transaction block",
			"A transaction that began before the session was bound stays read-only.", "Set them before BEGIN, with autocommit on, or at connect.")
	case codeFencePipeline:
		return own("55000", "SET fence.election and SET fence.token cannot run in the middle of a pipeline",
			"The server has not answered the messages before it.", "Send Sync and wait for its answer first, or present the credential at connect.")
	case codeFenceBound:
		hint := "Open another connection for another credential."
		if c.lead != nil {
			hint = "Open another connection for another credential, and present it at connect: a session that presents none there is bound by the listener."
		}
		return own("55000", "this session is already bound to "+c.bindings(), "A session stays bound until it ends.", hint)
	case codeRuled:
		return c.ruled.why(what)
	case codeCredential:
		return c.refused("ERROR", c.standing())
	}
	if c.isBound() && c.ruled != nil && policy.SQLReason(why) == policy.SQLUnparsed {
		r, _ := c.permitsAnything("a text that cannot be parsed")
		return r
	}
	// All others are writes, or count as writes, by a session that may only read.
	r := *c.standing()
	switch policy.SQLReason(why) {
	case policy.SQLWrite, policy.SQLLocks:
		r.Detail = join(r.Detail, "refused: "+words)
	case policy.SQLFunction:
		r.Detail = join(r.Detail, "refused: the function "+what+" has effects, or is not known to have none")
	case policy.SQLLeavesReadOnly:
		r.Detail = join(r.Detail, "refused: "+words+" would or might make the session read-write")
	case policy.SQLSetting:
		r.Detail = join(r.Detail, "refused: setting "+what+" this way would change how statements are read")
	case policy.SQLUnparsed:
		r.Detail = join(r.Detail, "the statement could not be parsed, and what cannot be parsed counts as a write; it may simply hold a syntax error")
	case policy.SQLTooComplex:
		r.Detail = join(r.Detail, "the statement is too long or too deeply nested to be parsed, and so counts as a write")
	}
	switch why {
	case codeFunctionCall:
		r.Detail = join(r.Detail, "refused: a FunctionCall message (large object interface) that does not only read")
	case codeEncoding:
		r.Detail = join(r.Detail, "refused: in a session whose client_encoding is or was one that hides ASCII in its characters, text beyond ASCII cannot be parsed reliably; start the session with UTF8")
	case codeBackslash:
		r.Detail = join(r.Detail, "refused: in a session whose standard_conforming_strings is or was off a backslash cannot be parsed reliably; start the session with it on")
	case codeTwoWays:
		r.Detail = join(r.Detail, "refused: a backslash next to a quote or to a character beyond ASCII, behind another statement without a Sync in between, cannot be parsed reliably")
	}
	return c.refused("ERROR", &r)
}

// boundTo is the election of the session's first bind, or empty.
func (c *core) boundTo() string {
	if len(c.terms) == 0 {
		return ""
	}
	return c.terms[0].Election
}

// bindings says what the session is bound to.
func (c *core) bindings() string {
	var all []string
	for i := range c.terms {
		all = append(all, fmt.Sprintf("election %q with number %d", c.terms[i].Election, c.terms[i].Number))
	}
	return strings.Join(all, ", ")
}

// notAllowed says to a client what nobody may do here.
func notAllowed(election, detail, hint string) report {
	r := refusalReport("ERROR", &guard.Refusal{Reason: guard.NotAllowed, Election: election, Detail: detail})
	r.hint = hint
	return r
}

func capital(s string) string {
	if s != "" && 'a' <= s[0] && s[0] <= 'z' {
		return string(s[0]-'a'+'A') + s[1:]
	}
	return s
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// sqlState is the SQLSTATE of a refusal.
func sqlState(r guard.Reason) string {
	switch r {
	case guard.NoCredential, guard.NotElected:
		return "25006" // read_only_sql_transaction
	case guard.Stale:
		return "FP001"
	case guard.LeaseVacant:
		return "FP002"
	case guard.BackendUnknown:
		return "FP003"
	case guard.FenceUnavailable, guard.Unbindable:
		return "FP004"
	case guard.FenceRegressed:
		return "FP005"
	case guard.FenceConflict:
		return "FP006"
	case guard.Unseverable:
		return "FP007"
	case guard.WrongElection:
		return "FP008"
	case guard.NotAllowed:
		return "FP009"
	case guard.InvalidCredential:
		return "FP010"
	case guard.Occupied:
		return "FP011"
	case guard.BindingLost:
		return "FP012"
	}
	return "FP000"
}

// refusalReport renders a refusal: the DETAIL names the election, the number held, the
// number that rules and its holder.
func refusalReport(severity string, r *guard.Refusal) report {
	var d []string
	if r.Election != "" && (r.Held != 0 || r.Rules != 0) {
		s := fmt.Sprintf("Election %q:", r.Election)
		if r.Held != 0 {
			s += fmt.Sprintf(" this session holds number %d;", r.Held)
		}
		if r.Rules != 0 {
			s += fmt.Sprintf(" number %d rules", r.Rules)
			if r.Leader != "" {
				s += fmt.Sprintf(", held by %q", r.Leader)
			}
		}
		d = append(d, strings.TrimSuffix(s, ";")+".")
	}
	if r.Detail != "" {
		d = append(d, capital(r.Detail)+".")
	}
	if len(d) == 0 {
		d = append(d, detail(r.Reason))
	}
	hint := r.Hint()
	switch r.Reason {
	case guard.NoCredential:
		hint = "Present the live token: SET fence.token = '...', or options=-c fence.token=... at connect."
	case guard.Unseverable:
		hint = "Connect as an ordinary role, directly from the proxy to the server."
	case guard.NotAllowed:
		hint = "Leaders and readers alike do without it."
	}
	return report{severity: severity, code: sqlState(r.Reason), message: r.Message(), detail: strings.Join(d, " "), hint: hint}
}

// refused is refusalReport for this session.
func (c *core) refused(severity string, r *guard.Refusal) report {
	rep := refusalReport(severity, r)
	if c.required && rep.hint == r.Hint() {
		rep.hint = r.HintBound()
	}
	return rep
}

// turnedAway says to a client why it cannot be served where sessions have to be bound.
func turnedAway(r *guard.Refusal) report {
	rep := refusalReport("FATAL", r)
	if rep.hint == r.Hint() {
		rep.hint = r.HintBound()
	}
	if r.Reason == guard.NoCredential {
		rep.code, rep.message = "28000", "connection refused: it presents no live token"
		rep.detail, rep.hint = "", "Present the live token at connect: options=-c fence.election=... -c fence.token=..."
	}
	rep.detail = strings.TrimSpace(rep.detail + " This listener serves bound sessions alone.")
	return rep
}

// detail says what a refusal of this reason means, where nothing more is known.
func detail(r guard.Reason) string {
	switch r {
	case guard.NoCredential, guard.NotElected:
		return "The session may only read."
	case guard.InvalidCredential:
		return "An election id or a token has another form."
	case guard.Stale:
		return "Another holder's term began after that of this token."
	case guard.LeaseVacant:
		return "Nobody is known to hold it."
	case guard.BackendUnknown:
		return "The election backend did not answer in time; the proxy's log says why."
	case guard.FenceUnavailable:
		return "The fence is in the server itself, and the proxy's control connection leads to it; the proxy's log says why."
	case guard.FenceRegressed, guard.FenceConflict:
		return "The election backend has lost its counter."
	case guard.Unseverable:
		return "A takeover must be able to end the sessions of the term before."
	case guard.WrongElection:
		return "The listener's configuration does not name it."
	case guard.NotAllowed:
		return "It would outlast the fence."
	case guard.BindingLost:
		return "One session at a time holds the election here, and another may by now."
	}
	return ""
}
