package resp

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
)

// A code says, in the name of a substitute, what takes the place of the server's answer
// to it.
type code byte

const (
	codeNone       code = 0   // nothing takes its place
	codeWrite      code = 'w' // a write of a session that is not bound
	codeUnknown    code = 'u' // a command that the server does not know, likewise
	codeNoName     code = 'z' // a word that can be no command's name
	codeLeader     code = 'l' // a command for bound sessions
	codeNotAllowed code = 'a' // a command for nobody
	codeFenceKey   code = 'k' // a write that names a fence's key
	codeName       code = 'n' // a reserved connection name
	codeTooLong    code = 't' // a command that must be held whole and is too long
	codeUnasked    code = 'x' // a command that could not be asked for
	codeInMulti    code = 'm' // FENCE, HELLO or a credential inside MULTI
	codeReplyOff   code = 'r' // FENCE BIND without replies
	codeMonitor    code = 'q' // FENCE BIND after MONITOR
	codeUsage      code = 'i' // FENCE with wrong arguments
	codeBind       code = 'b' // the outcome of FENCE BIND
	codeUnbound    code = 'd' // FENCE UNBIND where there was nothing to take off
	codeStatus     code = 's' // FENCE STATUS
	codeHelp       code = 'h' // FENCE HELP
	codeMoved      code = 'j' // a write on a replica, for the primary
	codeEarly      code = 'y' // a write on a node that is not known as a primary yet
	codeList       code = 'c' // CLUSTER SLOTS or the like at a wrong time
	codeNoOwnName  code = 'g' // CLIENT GETNAME where the client gave none
	codeOwn        code = 'v' // the shell's answer to an own command
	codeNotHere    code = 'e' // an own command that the listener has none for
	codeTooMany    code = 'f' // an own command of too many words
	codeNotNow     code = 'p' // an own command at a wrong time
	codeDenied     code = 'D' // a write that the rules deny to everybody
	codeRuled      code = 'R' // a write that the rules refuse, by its number in ruling
	codeBarred     code = 'B' // anything of a session that has to be bound, and is not
	codeSentinel   code = 'S' // nothing: it marks a place in the order of replies
)

// substitute puts a command that no server knows in the place of one that is not to be
// passed on. The server refuses it natively: in its order, without an answer after
// CLIENT REPLY OFF or SKIP, and so that EXEC aborts inside MULTI. Its name holds the
// session's nonce, by which the answer is found and replaced on its way back. It holds
// none of the client's arguments.
func (c *core) substitute(what code, cmd *command) {
	name := nameOf(cmd)
	if c.ruling != nil && (what == codeWrite || what == codeUnknown || what == codeDenied) {
		c.substituteFor(codeRuled, c.ruling.keep(c.ruling.why))
		return
	}
	if what == codeWrite && cmd != nil && cmd.unlisted {
		name, _, _ = strings.Cut(name, "|")
	}
	c.substituteFor(what, name)
}

// substituteFor is substitute with what stands for the command.
func (c *core) substituteFor(what code, of string) {
	c.conn.skipNext = false
	var buf [96]byte
	name := append(buf[:0], c.cfg.nonce...)
	name = append(name, ':', byte(what), ':')
	c.up = append(c.up, "*1\r\n"...)
	c.up = appendBulk(c.up, append(name, of[:min(len(of), 32)]...))
}

// sentinel puts a substitute into up whose answer is swallowed: when it comes, every
// earlier reply has.
func (c *core) sentinel() uint64 {
	c.sentinels++
	name := c.cfg.nonce + ":" + string(codeSentinel) + ":" + strconv.FormatUint(c.sentinels, 10)
	c.up = appendCommand(c.up, name)
	return c.sentinels
}

// First words of our errors, for programs.
const (
	wordFenced = "FENCED"
	wordDown   = "FENCEDOWN"
	wordNoPerm = "NOPERM"
	wordErr    = "ERR"
)

// words is the reply that takes the place of the server's answer to a substitute.
func (c *core) words(what code, command string) string {
	name := strings.ToUpper(strings.ReplaceAll(command, "|", " "))
	switch what {
	case codeWrite:
		return errorLine(refusalWord(c.why()), c.refusalText(c.why())+" Refused: "+name+"."+instead(command))
	case codeUnknown:
		return errorLine(wordFenced, "refused: the server does not know this command, so it counts as a write, and this session may not write: "+c.refusalText(c.why()))
	case codeBarred:
		return errorLine(refusalWord(c.why()), "this listener serves bound sessions alone: "+c.refusalText(c.why())+" Refused: "+cmp.Or(name, "a command that the server does not know")+".")
	case codeNoName:
		return errorLine(wordErr, "unknown command: its name, or its subcommand's, is longer than "+strconv.Itoa(maxName)+" bytes or has a NUL in it.")
	case codeLeader:
		return errorLine(wordFenced, name+" is for bound sessions: "+c.refusalText(c.why()))
	case codeNotAllowed:
		return errorLine(wordNoPerm, name+" is not allowed through fenceproxy, leader or not. Send it to the server itself.")
	case codeFenceKey:
		return errorLine(wordNoPerm, "keys that begin with "+fencePrefix+" are the fence's own and cannot be written through fenceproxy.")
	case codeName:
		return errorLine(wordNoPerm, "connection names that begin with fenceproxy: are reserved. Choose another name.")
	case codeTooLong:
		return errorLine(wordErr, name+" is longer than the "+strconv.Itoa(maxHeld)+" bytes that fenceproxy takes for this command.")
	case codeUnasked:
		return errorLine(wordDown, "refused: fenceproxy cannot ask the server what this command is. Check the proxy's control connection.")
	case codeInMulti:
		if command == authCommand.Name {
			name += " with a token"
		}
		return errorLine(wordErr, name+" is not allowed inside MULTI. Send it before MULTI.")
	case codeReplyOff:
		return errorLine(wordErr, "FENCE BIND needs replies. Send CLIENT REPLY ON first.")
	case codeMonitor:
		return errorLine(wordErr, "FENCE BIND is not possible on a session that monitors. Send RESET first.")
	case codeUsage:
		return errorLine(wordErr, "unknown FENCE subcommand or wrong number of arguments. Try FENCE HELP.")
	case codeBind:
		if c.bindErr != nil {
			return c.refusalLine(c.bindErr)
		}
		return "+OK\r\n"
	case codeUnbound:
		return "+OK\r\n"
	case codeMoved:
		return c.moved(command)
	case codeRuled:
		return c.ruling.take(command)
	case codeEarly:
		return errorLine("TRYAGAIN", "the cluster does not know yet that this node is a primary; then this session is bound.")
	case codeList:
		return errorLine(wordErr, name+" through fenceproxy needs replies, and is not possible inside MULTI or after MONITOR.")
	case codeNoOwnName:
		if c.conn.proto == 3 {
			return "_\r\n"
		}
		return "$-1\r\n"
	case codeOwn:
		if s := c.answer; s != "" {
			c.answer = ""
			return s
		}
	case codeNotHere:
		return errorLine(wordErr, notHere(command))
	case codeTooMany:
		return errorLine(wordErr, name+" has more words than it can have. Try "+name+" HELP.")
	case codeNotNow:
		return errorLine(wordErr, name+" needs replies, and a session that does not monitor. Send CLIENT REPLY ON, or RESET, first.")
	case codeStatus:
		return c.status()
	case codeHelp:
		return fenceHelp()
	}
	return errorLine(wordErr, "fenceproxy refused the command")
}

// instead says what a reader can do in the place of a command that is refused as a write.
func instead(command string) string {
	switch command {
	case "sort", "georadius", "georadiusbymember", "bitfield", "eval", "evalsha", "fcall":
		return " A reader can send " + strings.ToUpper(command) + "_RO."
	case "publish", "spublish":
		return " Readers can publish where the listener has publish: open."
	}
	return ""
}

// errorLine is one error reply. The words after the first never hold a line break.
func errorLine(word, text string) string {
	return "-" + word + " " + strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, text) + "\r\n"
}

func (c *core) refusalLine(r *guard.Refusal) string {
	return errorLine(refusalWord(r), c.refusalText(r))
}

func refusalWord(r *guard.Refusal) string {
	switch r.Reason {
	case guard.BackendUnknown, guard.FenceUnavailable, guard.Unbindable:
		return wordDown
	case guard.NotAllowed:
		return wordNoPerm
	}
	return wordFenced
}

// refusalText says what was refused and why, which numbers are held and rule, and what
// to do. The underlying error is for the log: it may name what is not the client's
// business.
func (c *core) refusalText(r *guard.Refusal) string {
	var b strings.Builder
	message := r.Message()
	if c.cfg.required {
		message = strings.TrimPrefix(message, "write refused: ") // so is everything else
	}
	b.WriteString(message)
	if r.Leader != "" {
		fmt.Fprintf(&b, ", held by %q", r.Leader)
	}
	if r.Held != 0 {
		fmt.Fprintf(&b, "; this session holds number %d", r.Held)
	}
	if r.Detail != "" {
		b.WriteString(": " + r.Detail)
	}
	b.WriteString(".")
	if h := c.hint(r); h != "" {
		b.WriteString(" " + h)
	}
	return b.String()
}

// hint is what to try, in the words of this protocol where it has its own.
func (c *core) hint(r *guard.Refusal) string {
	switch r.Reason {
	case guard.NoCredential:
		return "Present the live token: FENCE BIND [<election>] <token>, or the user name '<user>;token=...'."
	case guard.Unseverable:
		return "Let the proxy connect directly to the server, with no pooler in between."
	}
	if c.cfg.required {
		return r.HintBound()
	}
	return r.Hint()
}
