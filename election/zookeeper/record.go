package zookeeper

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// The states of a record.
const (
	stateHeld     = "held"
	stateReleased = "released"
)

// A record is what the node of an election holds. No two that are written differ in
// nothing: the number and the renewals tell them apart.
type record struct {
	Number   int64  `json:"number"` // the last number granted
	State    string `json:"state"`
	Owner    string `json:"owner"`
	Digest   string `json:"digest"`
	TTL      int64  `json:"ttl_ms"`
	Session  string `json:"session"`  // the session that the lease's node is of
	Renewals int64  `json:"renewals"` // since the acquisition
}

// errCorrupt: the node of an election holds what we did not write.
var errCorrupt = errors.New("delete it to begin anew")

// encode returns the record as it is stored.
func (r record) encode() []byte {
	b, _ := json.Marshal(r) // strings and integers always marshal
	return b
}

// decode reads a record, and refuses what encode did not write.
func decode(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("%w: the node holds no record", errCorrupt)
	}
	_, err := election.ParseDigest(r.Digest)
	ttl := time.Duration(r.TTL) * time.Millisecond
	if err != nil || r.Number <= 0 || r.State != stateHeld && r.State != stateReleased ||
		election.CheckOwner(r.Owner) != nil || r.TTL > election.MaxTTL.Milliseconds() || ttl < election.MinTTL {
		return record{}, fmt.Errorf("%w: the record has fields that make no sense", errCorrupt)
	}
	return r, nil
}

// of reports whether the record is of the token's grant.
func (r record) of(t election.Token) bool {
	return subtle.ConstantTimeCompare([]byte(r.Digest), []byte(t.Digest().String())) == 1
}

// ttl is how long the lease lasts.
func (r record) ttl() time.Duration { return time.Duration(r.TTL) * time.Millisecond }

// A view is an election as a call finds it.
type view struct {
	record
	exists  bool  // the node is there
	version int32 // of the node
	lease   bool  // a child of the node is there
	left    time.Duration
}

// held reports whether somebody holds the election: through a session that lives, with
// a lease that has not run out.
func (v view) held() bool { return v.lease && v.pending() }

// pending reports whether a lease was granted that has not run out, whatever became of
// its holder's session.
func (v view) pending() bool { return v.exists && v.State == stateHeld && v.left > 0 }

// sights remembers since when each election has had the record that it has. A lease has
// run out when its record was seen unchanged for as long as it lasts; by monotonic
// time, so that no clock need agree with another (E7). A sight that is forgotten
// makes an observer wait longer, never shorter.
type sights struct {
	mu   sync.Mutex
	byID map[string]sight
}

// maxSights bounds the memory for elections that somebody asked about.
const maxSights = 1 << 12

type sight struct {
	record
	at time.Time
}

// see returns how much of the record's lease is left, to somebody who sees it at the
// time now: that is after the server has answered, since the record may have been
// written while the question was under way.
func (s *sights) see(id string, r record, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.byID[id]
	if !ok || known.record != r {
		s.put(id, sight{r, now})
		return r.ttl()
	}
	return r.ttl() - now.Sub(known.at)
}

// wrote notes a record of our own, as of the time before it was sent: its holder counts
// from no later.
func (s *sights) wrote(id string, r record, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(id, sight{r, asked})
}

// forget forgets an election that has no record or is not held.
func (s *sights) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// put keeps a sight. When there are too many it drops those whose leases have run out,
// or else all.
func (s *sights) put(id string, x sight) {
	if s.byID == nil {
		s.byID = make(map[string]sight)
	}
	if _, ok := s.byID[id]; !ok && len(s.byID) >= maxSights {
		for id, old := range s.byID {
			if x.at.Sub(old.at) > old.ttl() {
				delete(s.byID, id)
			}
		}
		if len(s.byID) >= maxSights {
			clear(s.byID)
		}
	}
	s.byID[id] = x
}
