package guard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Binding is one consumer's hold on a partition. It is safe for concurrent use. When it
// has ended, or before: stop the work, then Release it.
type Binding struct {
	g         *Gate
	partition string
	permit    *Permit
	term      Term
	lease     string         // the election of the gate's lease
	token     election.Token // of the lease, random
	asked     atomic.Bool    // the lease was asked for

	ctx    context.Context //nolint:containedctx // of the questions about the lease: it ends with the binding
	cancel context.CancelFunc
	over   atomic.Bool   // ended; for Live
	until  atomic.Int64  // when the trust in the lease ends, in nanoseconds since g.epoch
	live   chan struct{} // closed when it is bound
	done   chan struct{} // closed when it has ended
	stop   chan struct{} // closed when the consumer has said that it stopped
	free   chan struct{} // closed when the partition is free for another
	after  afters        // called when it has ended

	mu       sync.Mutex
	number   int64 // of the lease
	since    time.Time
	refusal  *Refusal // why it ended
	released bool
}

func newBinding(g *Gate, partition string, p *Permit) *Binding {
	b := &Binding{
		g: g, partition: partition, permit: p, term: p.Term(),
		lease: p.Term().Election + g.suffix, token: election.NewToken(),
		live: make(chan struct{}), done: make(chan struct{}), stop: make(chan struct{}), free: make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Partition is the partition's name.
func (b *Binding) Partition() string { return b.partition }

// Term is the term that the partition is bound for.
func (b *Binding) Term() Term { return b.term }

// Live reports whether the consumer may work now. It asks the clock, not a timer, so that a
// process that was paused past the end sees it at its first step. Once false it stays
// false. It does not allocate.
func (b *Binding) Live() bool {
	if b.over.Load() || !b.permit.Live() {
		b.expire()
		return false
	}
	if int64(time.Since(b.g.epoch)) >= b.until.Load() {
		b.expire()
		return false
	}
	return true
}

// TrustedUntil is when the binding ends unless it is kept, with a monotonic reading; the
// zero time once it has ended. A consumer that hears nothing stops then. It only ever
// moves later.
func (b *Binding) TrustedUntil() time.Time {
	until := b.trust()
	// INVARIANT: looked at after the reading. What is told was so before the end, and
	// linger's own reading, after the end, is no earlier.
	if !b.Live() {
		return time.Time{}
	}
	return until
}

// trust is the end of the permit or of the lease, whichever comes first.
func (b *Binding) trust() time.Time {
	until := b.g.epoch.Add(time.Duration(b.until.Load()))
	if p := b.permit.TrustedUntil(); p.Before(until) {
		return p
	}
	return until
}

// Done is closed when the binding has ended. Live may turn false a moment earlier.
func (b *Binding) Done() <-chan struct{} { return b.done }

// Err is nil while the binding lives, and then a *Refusal that says why it ended.
func (b *Binding) Err() error {
	if b.Live() {
		return nil
	}
	return b.ended()
}

// Release says that the consumer has stopped: the partition is free for another as soon as
// the gate's lease is given back. Calling it again does nothing.
func (b *Binding) Release() {
	b.end(b.lost("it was released", nil))
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.released {
		b.released = true
		close(b.stop)
	}
}

// Abandon ends the binding of a consumer that is gone and has not said that it stopped: the
// partition is free when the binding's last deadline is over, or at Release. Calling it
// again does nothing.
func (b *Binding) Abandon() { b.end(b.lost("its consumer is gone", nil)) }

// Free is closed when the gate has let go of the partition: after Release as soon as the
// backend was told, otherwise when the binding's last deadline is over.
func (b *Binding) Free() <-chan struct{} { return b.free }

// end ends the binding for the reason given, unless it has ended already.
func (b *Binding) end(r *Refusal) {
	b.mu.Lock()
	if b.refusal != nil {
		b.mu.Unlock()
		return
	}
	b.refusal = r
	b.over.Store(true)
	bound := !b.since.IsZero()
	b.mu.Unlock()
	close(b.done)
	b.cancel()
	if bound {
		b.g.c.Log.Info(b.what()+" ended", b.where("election", b.term.Election, "number", b.term.Number, "reason", r.Error())...)
	}
}

// ended is why the binding has ended, or nil.
func (b *Binding) ended() *Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal
}

// expire ends the binding because its permit has ended or its time has run out.
func (b *Binding) expire() {
	if b.over.Load() {
		return
	}
	if r := b.permit.k.ended(); r != nil {
		b.end(r)
		return
	}
	b.end(b.refuse(BackendUnknown, "the gate's lease could not be renewed in time", nil))
}

// keep renews the binding's lease, ends the binding in time, and gives the lease back when
// that is safe.
func (b *Binding) keep() {
	var renewing, telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() {
		<-b.done
		b.after.call()
	})
	renewing.Go(b.renew)
	b.watch()
	renewing.Wait()
	if b.linger() {
		b.resign()
	}
	b.permit.Release()
	b.g.leave(b)
	close(b.free)
}

// watch returns when the binding has ended: by the clock, whatever the questions about the
// lease are doing.
func (b *Binding) watch() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	live := b.live
	var over <-chan time.Time
	for {
		select {
		case <-b.done:
			return
		case <-b.permit.Done():
			b.end(b.permit.k.ended())
		case <-live:
			live, over = nil, t.C
			t.Reset(b.left())
		case <-over:
			if left := b.left(); left > 0 {
				t.Reset(left)
			} else {
				b.expire()
			}
		}
	}
}

// linger waits until no consumer can trust the binding any more, and reports whether the
// lease is to be given back.
//
// INVARIANT: the lease is given back only when the consumer has said that it stopped, or
// when the last moment that it can have been told to trust is over by a margin. Both ends of
// trust only ever move later, and stand still once the binding has ended.
func (b *Binding) linger() bool {
	t := time.NewTimer(time.Until(b.trust()) + b.g.margin())
	defer t.Stop()
	select {
	case <-b.stop:
		return true
	case <-t.C:
		return true
	case <-b.g.closing:
	}
	select {
	case <-b.stop:
		return true
	default:
		return false // it runs out by itself, later than the consumer's trust
	}
}

// left is how long the trust in the lease still lasts.
func (b *Binding) left() time.Duration {
	return time.Duration(b.until.Load()) - time.Since(b.g.epoch)
}

// bound tells of the binding. g.mu is held.
func (b *Binding) bound() Bound {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Bound{
		Partition: b.partition, Election: b.term.Election, Owner: b.term.Owner, Number: b.term.Number,
		Since: b.since, TrustedUntil: b.trust(), Ended: b.refusal != nil,
	}
}

// what and where say in the log what is bound: an Exclusive's is of no partition.
func (b *Binding) what() string {
	if b.g.exclusive {
		return "exclusive binding"
	}
	return "partition's binding"
}

func (b *Binding) where(more ...any) []any {
	switch {
	case !b.g.exclusive:
		return append([]any{"gate", b.g.c.Name, "partition", b.partition}, more...)
	case b.partition != "":
		return append([]any{"client", b.partition}, more...)
	}
	return more
}

// refuse makes a refusal with what the binding knows.
func (b *Binding) refuse(why Reason, detail string, err error) *Refusal {
	return &Refusal{Reason: why, Election: b.term.Election, Held: b.term.Number, Detail: detail, Err: err}
}

func (b *Binding) lost(detail string, err error) *Refusal { return b.refuse(BindingLost, detail, err) }

func (b *Binding) occupied(number int64, owner string) *Refusal {
	r := b.refuse(Occupied, "", nil)
	r.Rules, r.Leader = number, owner
	return r
}

// occupiedStill is the refusal when somebody waited in vain for a binding to be free.
func (b *Binding) occupiedStill(number int64, owner string, err error) *Refusal {
	r := b.occupied(number, owner)
	r.Detail, r.Err = "gave up waiting for it to be free", err
	return r
}
