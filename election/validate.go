package election

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

// Errors of every backend, for errors.Is.
var (
	// ErrInvalidID: the election id breaks the rules of CheckID.
	ErrInvalidID = errors.New("invalid election id")
	// ErrInvalidToken: the token's text breaks the rules of ParseToken, or is missing.
	ErrInvalidToken = errors.New("invalid token")
	// ErrInvalidOwner: the owner breaks the rules of CheckOwner.
	ErrInvalidOwner = errors.New("invalid owner")
	// ErrInvalidTTL: a TTL or hold-off is out of range.
	ErrInvalidTTL = errors.New("invalid duration")
	// ErrInvalidFencing: MinFencing is negative.
	ErrInvalidFencing = errors.New("invalid fencing number")
	// ErrUnsupportedOption: the backend cannot enforce an option that was set.
	ErrUnsupportedOption = errors.New("option not supported by this election backend")
	// ErrNumbersExhausted: the fencing number cannot rise any further.
	ErrNumbersExhausted = errors.New("fencing numbers exhausted")
	// ErrUnavailable: the backend could not be asked or did not answer; the
	// outcome is unknown.
	ErrUnavailable = errors.New("election backend unavailable")
	// ErrCorrupt: what the backend holds for the election cannot be understood.
	ErrCorrupt = errors.New("election record corrupt")
	// ErrClosed: the backend was closed.
	ErrClosed = errors.New("election backend closed")
)

// MaxIDLen and MaxOwnerLen are the longest election id and owner, in bytes.
const (
	MaxIDLen    = 128
	MaxOwnerLen = 128
)

// CheckID reports whether id may name an election: 1 to MaxIDLen characters of
// A-Z a-z 0-9 . _ - : / beginning with a letter or a digit. The error is
// ErrInvalidID.
func CheckID(id string) error {
	if id == "" || len(id) > MaxIDLen {
		return fmt.Errorf("%w: its length is %d, must be 1 to %d", ErrInvalidID, len(id), MaxIDLen)
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if isAlnum(c) || i > 0 && strings.IndexByte("._-:/", c) >= 0 {
			continue
		}
		return fmt.Errorf("%w %q: character %d must be a letter, a digit or, after the first, one of . _ - : /", ErrInvalidID, id, i+1)
	}
	return nil
}

// CheckOwner reports whether owner may name a candidate: 1 to MaxOwnerLen
// printable ASCII characters, no spaces. The error is ErrInvalidOwner.
func CheckOwner(owner string) error {
	if owner == "" || len(owner) > MaxOwnerLen {
		return fmt.Errorf("%w: its length is %d, must be 1 to %d", ErrInvalidOwner, len(owner), MaxOwnerLen)
	}
	for i := 0; i < len(owner); i++ {
		if owner[i] == ' ' {
			return fmt.Errorf("%w %q: character %d is a space", ErrInvalidOwner, owner, i+1)
		}
		if c := owner[i]; c < ' ' || c > '~' {
			return fmt.Errorf("%w %q: character %d is not printable ASCII", ErrInvalidOwner, owner, i+1)
		}
	}
	return nil
}

// DefaultOwner returns the host's name and a random part, for instance
// "db7-9f2c41d0": every call another.
func DefaultOwner() string {
	host, err := os.Hostname()
	if err != nil || CheckOwner(host) != nil {
		host = "host"
	}
	if len(host) > MaxOwnerLen-9 {
		host = host[:MaxOwnerLen-9]
	}
	var b [4]byte
	rand.Read(b[:])
	return host + "-" + hex.EncodeToString(b[:])
}

// Normalize fills in the defaults of o and checks it with the election id.
// Backends call it first.
func (o AcquireOptions) Normalize(id string) (AcquireOptions, error) {
	if err := CheckID(id); err != nil {
		return o, err
	}
	if o.Owner == "" {
		o.Owner = DefaultOwner()
	}
	if err := CheckOwner(o.Owner); err != nil {
		return o, err
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	o.TTL = o.TTL.Truncate(time.Millisecond)
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return o, fmt.Errorf("%w: TTL %v, must be %v to %v", ErrInvalidTTL, o.TTL, MinTTL, MaxTTL)
	}
	if o.MinFencing < 0 {
		return o, fmt.Errorf("%w: MinFencing %d is negative", ErrInvalidFencing, o.MinFencing)
	}
	if o.Token.IsZero() {
		o.Token = NewToken()
	}
	return o, nil
}

// Check checks o with the election id and the token.
func (o ResignOptions) Check(id string, t Token) error {
	if err := CheckIDToken(id, t); err != nil {
		return err
	}
	if o.HoldOff < 0 || o.HoldOff > MaxTTL {
		return fmt.Errorf("%w: hold-off %v, must be 0 to %v", ErrInvalidTTL, o.HoldOff, MaxTTL)
	}
	return nil
}

// CheckIDToken checks an election id and that there is a token at all.
func CheckIDToken(id string, t Token) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if t.IsZero() {
		return fmt.Errorf("%w: none given", ErrInvalidToken)
	}
	return nil
}

// NextNumber is the fencing number of the acquisition after previous:
// max(previous+1, floor, now in milliseconds since 1970). The clock term keeps
// numbers rising after a backend lost its data; safety never rests on it.
func NextNumber(previous, floor int64, now time.Time) (int64, error) {
	if previous == math.MaxInt64 {
		return 0, ErrNumbersExhausted
	}
	return max(previous+1, floor, now.UnixMilli()), nil
}
