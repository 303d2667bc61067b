package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fenceproxy/fenceproxy/election"
)

// Annotations of a Lease.
const (
	prefix        = "fenceproxy.github.io/"
	electionNote  = prefix + "election"
	numberNote    = prefix + "fencing-number"
	digestNote    = prefix + "token-digest"
	ttlNote       = prefix + "ttl-milliseconds"
	writeNote     = prefix + "write"
	nameHashBytes = 20
)

// leaseName is the name of an election's Lease: its id where that is a DNS label,
// else what of it may stand in a name, a dot, and a hash of it. No label has a dot, so
// the two kinds never meet; two ids of one hash are told apart by the Lease's
// annotation.
func leaseName(id string) string {
	if len(validation.IsDNS1123Label(id)) == 0 {
		return id
	}
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, id)
	readable = readable[:min(len(readable), validation.DNS1123LabelMaxLength)]
	sum := sha256.Sum256([]byte(id))
	return strings.Trim(readable, "-") + "." + hex.EncodeToString(sum[:nameHashBytes])
}

// A record is what a Lease says of its election. Two records of one election are
// equal only if they are of the same write: write is random, and uid is of one Lease.
type record struct {
	uid    types.UID
	write  string
	number int64 // the last number granted
	held   bool  // by somebody, whose lease may have ended
	owner  string
	digest election.Digest
	ttl    time.Duration
}

// decode reads the Lease of an election. The error says what is wrong with it.
func decode(l *coordinationv1.Lease, id string) (record, error) {
	notes := l.Annotations
	of, ok := notes[electionNote]
	if !ok {
		return record{}, errors.New("it was not made by fenceproxy: it lacks the annotation " + electionNote)
	}
	// Safety: an election never answers from another's Lease.
	if of != id {
		return record{}, fmt.Errorf("it is that of election %q", of)
	}
	r := record{uid: l.UID, write: notes[writeNote]}
	var err error
	if r.number, err = strconv.ParseInt(notes[numberNote], 10, 64); err != nil || r.number <= 0 {
		return record{}, fmt.Errorf("its annotation %s is %q, no positive number", numberNote, notes[numberNote])
	}
	digest, ok := notes[digestNote]
	if !ok {
		return r, nil
	}
	r.held = true
	if r.digest, err = election.ParseDigest(digest); err != nil {
		return record{}, fmt.Errorf("its annotation %s: %w", digestNote, err)
	}
	ms, err := strconv.ParseInt(notes[ttlNote], 10, 64)
	if r.ttl = time.Duration(ms) * time.Millisecond; err != nil || ms <= 0 || ms > election.MaxTTL.Milliseconds() {
		return record{}, fmt.Errorf("its annotation %s is %q, not 1 to %d", ttlNote, notes[ttlNote], election.MaxTTL.Milliseconds())
	}
	if l.Spec.HolderIdentity != nil {
		r.owner = *l.Spec.HolderIdentity
	}
	if err := election.CheckOwner(r.owner); err != nil {
		return record{}, fmt.Errorf("its holderIdentity: %w", err)
	}
	return r, nil
}

// encode returns the Lease that says r, made from old, nil for none: the same object
// (its UID and resourceVersion among what is kept), so that the API server refuses the
// write when that object is another or gone.
func encode(old *coordinationv1.Lease, name, id string, r record, now time.Time) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if old != nil {
		l = old.DeepCopy()
	}
	was := l.Annotations[numberNote]
	l.Annotations = maps.Clone(l.Annotations)
	if l.Annotations == nil {
		l.Annotations = make(map[string]string)
	}
	number := strconv.FormatInt(r.number, 10)
	l.Annotations[electionNote] = id
	l.Annotations[numberNote] = number
	l.Annotations[writeNote] = r.write
	at := metav1.NewMicroTime(now)
	l.Spec.RenewTime = &at
	if !r.held {
		delete(l.Annotations, digestNote)
		delete(l.Annotations, ttlNote)
		l.Spec.HolderIdentity = nil
		return l
	}
	l.Annotations[digestNote] = r.digest.String()
	l.Annotations[ttlNote] = strconv.FormatInt(r.ttl.Milliseconds(), 10)
	l.Spec.HolderIdentity = &r.owner
	// At least 1: the API server refuses less.
	seconds := int32((r.ttl + time.Second - 1) / time.Second)
	l.Spec.LeaseDurationSeconds = &seconds
	if was == number { // a renewal
		return l
	}
	l.Spec.AcquireTime = &at
	if old != nil {
		var n int32
		if l.Spec.LeaseTransitions != nil {
			n = *l.Spec.LeaseTransitions
		}
		if n < math.MaxInt32 {
			n++
		}
		l.Spec.LeaseTransitions = &n
	}
	return l
}
