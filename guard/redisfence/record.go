package redisfence

import (
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// Prefix begins the names of bound connections and of fence keys. A session must not
// give itself a connection name that begins with it.
const Prefix = "fenceproxy:"

// ErrCorrupt means that a fence's key holds what no fenceproxy wrote.
var ErrCorrupt = errors.New("the fence's key holds something else")

// Key is the key of an election's fence. Election ids hold no braces, so that the hash
// tag is the whole id.
func Key(electionID string) string { return Prefix + "{" + electionID + "}:fence" }

// Encode is the value of a fence's key: "n:digest:state:raise", ASCII without spaces.
// Equal records have equal values and the other way round.
func Encode(r guard.Record) string {
	state := "severed"
	if r.State == guard.Raised {
		state = "raised"
	}
	return strconv.FormatInt(r.Highest, 10) + ":" + r.Holder.String() + ":" + state + ":" + hex.EncodeToString(r.Raise[:])
}

// Decode reads what Encode wrote, and nothing else.
func Decode(value string) (guard.Record, error) {
	const maxLen = 19 + 1 + 64 + 1 + 7 + 1 + 16
	var r guard.Record
	parts := strings.Split(value[:min(len(value), maxLen+1)], ":")
	if len(value) > maxLen || len(parts) != 4 || len(parts[3]) != 2*len(r.Raise) {
		return r, fmt.Errorf("%w (%d bytes)", ErrCorrupt, len(value))
	}
	n, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || n <= 0 {
		return r, fmt.Errorf("%w: its number", ErrCorrupt)
	}
	digest, err := election.ParseDigest(parts[1])
	if err != nil {
		return r, fmt.Errorf("%w: its digest", ErrCorrupt)
	}
	r = guard.Record{Highest: n, Holder: digest, State: guard.Severed}
	if parts[2] == "raised" {
		r.State = guard.Raised
	}
	if _, err := hex.Decode(r.Raise[:], []byte(parts[3])); err != nil || Encode(r) != value {
		return guard.Record{}, fmt.Errorf("%w: not in the form that is written", ErrCorrupt)
	}
	return r, nil
}

// A Name is one term in the name of a bound connection: "fenceproxy:<election>:<n>:<holder>".
// A connection that is bound to several has them all, with commas between and the prefix once.
type Name struct {
	Election string
	Number   int64
	// Holder is the first 8 bytes of the holder's digest, so that two holders of one
	// number (after the fence and the counter were both lost) are told apart.
	Holder [8]byte
}

// ConnName is the name of a connection that is bound to the term.
func ConnName(t guard.Term) string {
	return Prefix + t.Election + ":" + strconv.FormatInt(t.Number, 10) + ":" + hex.EncodeToString(t.Digest[:8])
}

// JoinConnNames is the name of a connection that is bound to several terms, given the name of
// each.
func JoinConnNames(names ...string) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteByte(between)
			n = strings.TrimPrefix(n, Prefix)
		}
		b.WriteString(n)
	}
	return b.String()
}

// between stands between the terms in a connection's name. No election's name holds it.
const between = ','

// Of reports whether the name is the term's.
func (n Name) Of(t guard.Term) bool {
	return n.Election == t.Election && n.Number == t.Number && n.Holder == [8]byte(t.Digest[:8])
}

// ParseConnName yields the terms in a connection's name: none, if it is not bound.
//
// INVARIANT: each of them counts, whatever the others are. A sweep of any ends the connection.
func ParseConnName(name string) iter.Seq[Name] {
	return func(yield func(Name) bool) {
		rest, ok := strings.CutPrefix(name, Prefix)
		for more := ok; more; {
			var one string
			one, rest, more = strings.Cut(rest, string(between))
			if n, ok := parseTerm(one); ok && !yield(n) {
				return
			}
		}
	}
}

func parseTerm(rest string) (Name, bool) {
	// An election id may hold colons: read from the end.
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || len(rest)-i-1 != 16 {
		return Name{}, false
	}
	var n Name
	if _, err := hex.Decode(n.Holder[:], []byte(rest[i+1:])); err != nil {
		return Name{}, false
	}
	rest = rest[:i]
	i = strings.LastIndexByte(rest, ':')
	if i < 0 || election.CheckID(rest[:i]) != nil {
		return Name{}, false
	}
	number, err := strconv.ParseInt(rest[i+1:], 10, 64)
	if err != nil || number <= 0 {
		return Name{}, false
	}
	n.Election, n.Number = rest[:i], number
	return n, true
}
