package pg

import "strings"

// A replication connection takes, besides SQL, commands of a language of its own. Which of
// the two a Query is in the server tells by its first word; no comment may stand before it.
//
// A command reads that sends WAL or files to the client. Reading from a slot moves the slot
// on, which is what a slot is for. To make, drop or change a slot that outlives the session is
// a write, and so is a base backup that the server puts elsewhere than to the client.

// replicates judges a text as a replication command. It reports false when it is none: then it
// is SQL, as is SHOW, which is in both languages.
func replicates(text []byte) (command, reads bool, name string) {
	first, rest := nextWord(text)
	name = strings.ToLower(first.text)
	if first.kind != 'w' {
		return false, false, ""
	}
	switch name {
	case "identify_system", "start_replication", "timeline_history", "read_replication_slot", "upload_manifest":
		return true, true, name
	case "create_replication_slot":
		// CREATE_REPLICATION_SLOT slot TEMPORARY …: it ends with its session.
		_, rest = nextWord(rest)
		third, _ := nextWord(rest)
		return true, third.kind == 'w' && third.text == "TEMPORARY", name
	case "drop_replication_slot", "alter_replication_slot":
		return true, false, name
	case "base_backup":
		return true, !backsUpElsewhere(rest), name
	}
	return false, false, ""
}

// backsUpElsewhere says whether a BASE_BACKUP has an option TARGET that is not the client.
func backsUpElsewhere(rest []byte) bool {
	for {
		var w word
		if w, rest = nextWord(rest); w.kind == 0 {
			return false
		}
		if (w.kind == 'w' || w.kind == '"') && strings.EqualFold(w.text, "target") {
			if value, _ := nextWord(rest); value.text != "client" && value.text != "blackhole" {
				return true
			}
		}
	}
}

// A word is a token of the replication commands.
type word struct {
	kind byte // 'w' for a word, a quote for what stood in them, 0 at the end, else the character itself
	text string
}

// nextWord reads a token and returns what follows it.
func nextWord(b []byte) (word, []byte) {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	switch {
	case len(b) == 0:
		return word{}, nil
	case b[0] == '\'' || b[0] == '"':
		q := b[0]
		var text []byte
		for b = b[1:]; len(b) > 0; b = b[1:] {
			if b[0] == q {
				if len(b) < 2 || b[1] != q {
					return word{q, string(text)}, b[1:]
				}
				b = b[1:]
			}
			text = append(text, b[0])
		}
		return word{q, string(text)}, nil
	case !isWord(b[0]):
		return word{b[0], string(b[:1])}, b[1:]
	}
	n := 1
	for n < len(b) && isWord(b[n]) {
		n++
	}
	return word{'w', string(b[:n])}, b[n:]
}
