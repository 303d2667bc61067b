package kubernetes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// resource and manager name what is asked for and who asks.
const (
	resource = "leases"
	manager  = "fenceproxy"
)

// A state is what one question to the API server brought.
type state struct {
	record                       // zero when there is no Lease
	lease  *coordinationv1.Lease // nil for none
	// now is a time after the answer and since when this record was first seen; both
	// monotonic.
	now, since time.Time
	highest    int64     // the highest number that this backend saw of the election
	clock      time.Time // the API server's clock, as far as it is known
}

// live reports whether somebody's lease has not ended.
func (s *state) live() bool { return s.held && s.left() > 0 }

// left is the lease's time left, if somebody holds it.
func (s *state) left() time.Duration { return s.ttl - s.now.Sub(s.since) }

// heldBy reports whether t is the live holder's token.
func (s *state) heldBy(t election.Token) bool { return s.live() && s.digest == t.Digest() }

// rereads is how often read asks again when its answer may be out of date.
const rereads = 3

// read asks for the election's Lease: once, unless another call of this backend saw a
// change of it in the meantime. The question names no resourceVersion: with one the API
// server might answer from a cache what was true before a takeover.
func (c *call) read(ctx context.Context) (*state, error) {
	if err := c.pause(ctx); err != nil {
		return nil, err
	}
	for again := 0; ; again++ {
		var (
			l  coordinationv1.Lease
			at serverTime
		)
		asked := time.Now()
		err := c.client.Get().MaxRetries(0).Namespace(c.namespace).Resource(resource).Name(c.lease).
			Do(at.in(ctx)).Into(&l)
		s := &state{now: time.Now(), clock: at.clock(c.wall())}
		if missing(err) {
			s.highest = c.seen.highest(c.id)
			return s, nil
		}
		if err != nil {
			return nil, c.failed(ctx, err)
		}
		if s.record, err = decode(&l, c.id); err != nil {
			return nil, fault.Corrupt(c.doing, c.id, fmt.Sprintf("Lease %s/%s: %v", c.namespace, c.lease, err))
		}
		s.lease = &l
		var ok bool
		if s.since, ok = c.seen.see(c.id, s.record, asked, s.now); ok || again == rereads {
			s.highest = c.seen.highest(c.id)
			return s, nil
		}
	}
}

// missing reports whether the API server itself says that there is no such object. A 404
// of anything else (a gateway, a server without this API) says nothing about it.
func missing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// write replaces the Lease that s was read from by one that says r. It reports false,
// and has changed nothing, when that Lease is no longer the one that is there: the
// caller then reads and decides again. After an error the outcome is unknown.
//
// Safety: the write is bound to the resourceVersion and, since the API server lets a
// PUT create a Lease that is gone, to the UID of the one read. So no decision is
// carried out on anything but what it was made on.
func (c *call) write(ctx context.Context, s *state, r record) (done bool, err error) {
	r.write = rand.Text()
	l := encode(s.lease, c.lease, c.id, r, c.wall())
	var verb = c.client.Post
	if s.lease != nil {
		verb = c.client.Put
	}
	q := verb().MaxRetries(0).Namespace(c.namespace).Resource(resource).Param("fieldManager", manager)
	if s.lease != nil {
		q = q.Name(c.lease)
	}
	var made coordinationv1.Lease
	asked := time.Now()
	err = q.Body(l).Do(ctx).Into(&made)
	switch {
	case err == nil:
		r.uid = made.UID
		c.seen.see(c.id, r, asked, time.Now())
		return true, nil
	case s.lease == nil && apierrors.IsAlreadyExists(err),
		s.lease != nil && (apierrors.IsConflict(err) || missing(err)):
		c.tries++
		return false, nil
	}
	return false, c.failed(ctx, err)
}

// pause keeps those who lose against each other again and again apart.
func (c *call) pause(ctx context.Context) error {
	if c.tries < 2 {
		return nil
	}
	longest := time.Millisecond << min(c.tries, 6)
	t := time.NewTimer(mathrand.N(longest)) //nolint:gosec // no secret: it only spreads them
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return c.failed(ctx, nil)
	}
}

// failed is the error of a question or a write whose outcome is unknown.
func (c *call) failed(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), election.ErrClosed) {
		return fault.Closed(c.doing, c.id)
	}
	// What took this answer may have taken every connection there is: the next
	// question is not to find out one by one.
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		c.conns.dropIdle()
	}
	switch {
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("%w (this needs get and, to hold elections, create and update of leases.coordination.k8s.io in namespace %q)", err, c.namespace)
	case apierrors.IsUnauthorized(err):
		err = fmt.Errorf("%w (the API server does not accept the credentials)", err)
	case missing(err):
		err = fmt.Errorf("%w (does namespace %q exist?)", err, c.namespace)
	}
	return fault.Unavailable(ctx, c.doing, c.id, err)
}

// A serverTime is what an answer says of the API server's clock.
type serverTime struct{ date time.Time }

type serverTimeKey struct{}

// in asks for the time of the answer to whatever is asked with the context.
func (t *serverTime) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, serverTimeKey{}, t)
}

// clock is the API server's time, which it tells in whole seconds; the local clock
// refines it as far as the two agree. It makes numbers rise after a Lease was deleted,
// also where the candidates' clocks are far apart; nothing else depends on it.
func (t *serverTime) clock(local time.Time) time.Time {
	if t.date.IsZero() {
		return local
	}
	if last := t.date.Add(time.Second - time.Millisecond); local.After(last) {
		return last
	}
	if local.Before(t.date) {
		return t.date
	}
	return local
}

// dated is a round tripper that notes the time of each answer for who asked for it.
type dated struct{ next http.RoundTripper }

func (d dated) RoundTrip(q *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(q)
	if t, ok := q.Context().Value(serverTimeKey{}).(*serverTime); ok && err == nil {
		t.date, _ = http.ParseTime(resp.Header.Get("Date"))
	}
	return resp, err
}
