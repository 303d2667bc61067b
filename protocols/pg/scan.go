package pg

// What a bound session's text may hold that the proxy must look at more closely. The
// scan only has to be cheap and to miss nothing; the parser then decides.
type hints uint8

const (
	hintFence   hints = 1 << iota // fence.something
	hintPrepare                   // PREPARE TRANSACTION
	hintReset                     // DISCARD, RESET, or settings of read-only
)

// skipBudget bounds how many bytes of comments one text may make the scan skip again.
const skipBudget = 1 << 16

// scan looks for the words that matter in a bound session's statement.
func scan(text []byte) hints {
	var h hints
	budget := skipBudget
	for i := 0; i < len(text); i++ {
		switch text[i] | 0x20 {
		case 'f':
			if hasWord(text[i:], "fence") && dotFollows(text[i+5:], &budget) {
				h |= hintFence
			}
		case 'p':
			if startsWord(text, i) && hasWord(text[i:], "prepare") && transactionFollows(text[i+7:], &budget) {
				h |= hintPrepare
			}
		case 'd':
			if hasWord(text[i:], "discard") || hasWord(text[i:], "default_transaction_read_only") {
				h |= hintReset
			}
		case 'r':
			if startsWord(text, i) && hasWord(text[i:], "reset") {
				h |= hintReset
			}
		case 'u':
			// U&"…" may spell any name.
			if i+2 < len(text) && text[i+1] == '&' && (text[i+2] == '"' || text[i+2] == '\'') {
				h |= hintFence | hintReset
			}
		case 'c':
			if startsWord(text, i) && hasWord(text[i:], "characteristics") {
				h |= hintReset
			}
		}
	}
	return h
}

// hasWord reports whether b begins with the lower-case word w, in any case.
func hasWord(b []byte, w string) bool {
	if len(b) < len(w) || b[1]|0x20 != w[1]|0x20 {
		return false
	}
	for i := 2; i < len(w); i++ {
		// '_' is its own lower case but for the bit: 0x5f|0x20 == 0x7f on both sides.
		if b[i]|0x20 != w[i]|0x20 {
			return false
		}
	}
	return true
}

func startsWord(b []byte, i int) bool { return i == 0 || !isWord(b[i-1]) }

func isWord(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// dotFollows reports whether, after quotes, white space and comments, a dot follows.
func dotFollows(b []byte, budget *int) bool {
	if len(b) > 0 && b[0] == '"' {
		b = b[1:]
	}
	b, ok := skipBlank(b, budget)
	return !ok || len(b) > 0 && b[0] == '.'
}

// transactionFollows reports whether, after white space and comments, the word
// TRANSACTION follows.
func transactionFollows(b []byte, budget *int) bool {
	b, ok := skipBlank(b, budget)
	const w = "transaction"
	return !ok || len(b) >= len(w) && b[0]|0x20 == 't' && hasWord(b, w)
}

// skipBlank skips white space and comments. It reports false when the budget is spent:
// then the caller must think the worst.
func skipBlank(b []byte, budget *int) ([]byte, bool) {
	n := len(b)
	depth := 0
	for len(b) > 0 {
		if n-len(b) > *budget {
			return b, false
		}
		switch {
		case len(b) > 1 && b[0] == '/' && b[1] == '*':
			depth++
			b = b[2:]
		case depth > 0 && len(b) > 1 && b[0] == '*' && b[1] == '/':
			depth--
			b = b[2:]
		case depth > 0 || isSpace(b[0]):
			b = b[1:]
		case len(b) > 1 && b[0] == '-' && b[1] == '-':
			for len(b) > 0 && b[0] != '\n' && b[0] != '\r' {
				b = b[1:]
			}
		default:
			*budget -= n - len(b)
			return b, true
		}
	}
	*budget -= n - len(b)
	return b, true
}
