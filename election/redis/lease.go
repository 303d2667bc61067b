package redis

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A lease is what the key of that name says. The zero lease is none.
type lease struct {
	digest election.Digest
	number int64
	owner  string
	left   time.Duration // more than 0 when it is held
}

// parseLease reads a lease from its time to live and its text. A lease about to end
// has ended; one that would never end is no lease of ours.
func parseLease(ttl, text any) (l lease, ok bool) {
	if l.left, ok = parseTTL(ttl); !ok || l.left == 0 {
		return lease{}, ok
	}
	s, ok := text.(string)
	if !ok {
		return lease{}, false
	}
	digest, s, _ := strings.Cut(s, " ")
	number, s, _ := strings.Cut(s, " ")
	whole, owner, _ := strings.Cut(s, " ")
	var err1, err2 error
	l.digest, err1 = election.ParseDigest(digest)
	l.number, err2 = parseNumber(number)
	_, err3 := parseNumber(whole)
	l.owner = owner
	if err1 != nil || err2 != nil || err3 != nil || l.number == 0 || election.CheckOwner(owner) != nil {
		return lease{}, false
	}
	return l, true
}

// parseTTL reads the answer of PTTL: 0 when the key is gone. It is not ok for a key that
// has no end.
func parseTTL(v any) (left time.Duration, ok bool) {
	switch ms, ok := v.(int64); {
	case !ok || ms == -1 || ms > math.MaxInt64/int64(time.Millisecond):
		return 0, false
	case ms < 0:
		return 0, true
	default:
		return time.Duration(ms) * time.Millisecond, true
	}
}

// parseNumber reads a fencing number, 0 for one that is missing.
func parseNumber(s string) (int64, error) {
	if s == "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n, err
}
