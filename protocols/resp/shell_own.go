package resp

import (
	"context"
	"errors"
	"os"
	"time"
)

// conversations are a session's, by the name of the command. The client's pump alone uses
// them, and what it starts and waits for.
type conversations struct {
	by   map[string]Conversation
	anew int // how many RESETs they come after
}

// call has an own command answered. Meanwhile it reads ahead, so that it sees a client that
// has gone. It reports whether to go on.
func (x *session) call(ctx context.Context, c *call) bool {
	done := make(chan struct{})
	x.mu.Lock()
	begun := x.core.call()
	if begun {
		x.called = done
	}
	x.mu.Unlock()
	if !begun {
		return true // and the core says what is to be done
	}
	calling, cancel := context.WithCancel(ctx)
	x.others.Go(func() {
		r := Reply{proto: c.proto}
		x.conversation(c.name).Answer(calling, c.args, &r)
		x.mu.Lock()
		x.core.called(r.b)
		ended := x.core.ended
		x.mu.Unlock()
		close(done) // before the wake: who takes that looks here
		if ended {
			x.hurryServer()
		}
		x.wakeClient()
	})
	defer func() {
		cancel()
		<-done
	}()
	for {
		_, over := x.readAhead(ctx)
		if over {
			return false
		}
		select {
		case <-done:
			return true
		default:
		}
		if x.gone == nil && ctx.Err() == nil && len(x.ahead) < cap(x.ahead) {
			continue
		}
		break
	}
	var limit <-chan time.Time
	if x.gone != nil {
		t := time.NewTimer(linger) // as in await
		defer t.Stop()
		limit = t.C
	}
	select {
	case <-done:
		return true
	case <-x.over:
	case <-limit:
	}
	return false
}

// awaitCall waits for the answer to an own command, if one is under way.
func (x *session) awaitCall() {
	x.mu.Lock()
	called := x.called
	x.mu.Unlock()
	if called == nil {
		return
	}
	t := time.NewTimer(drainGrace)
	defer t.Stop()
	select {
	case <-called:
	case <-t.C:
	}
}

// conversation is the session's about that command.
func (x *session) conversation(name string) Conversation {
	t := x.talks.by[name]
	if t == nil {
		t = x.server.c.Own[name].Begin(x.client.RemoteAddr())
		if x.talks.by == nil {
			x.talks.by = make(map[string]Conversation)
		}
		x.talks.by[name] = t
	}
	return t
}

// endTalks ends the conversations. A RESET makes them begin anew: who has authenticated
// in one has not, after it.
func (x *session) endTalks() {
	for _, t := range x.talks.by {
		t.End()
	}
	x.talks.by = nil
}

// readAhead reads what the client sends while the core takes nothing. It returns when the
// core may go on (woken), when the server's pump has ended (over), and when it can read no
// more: the client has gone, ahead is full, or ctx has ended.
func (x *session) readAhead(ctx context.Context) (woken, over bool) {
	if cap(x.ahead) == 0 {
		x.ahead = make([]byte, 0, aheadSize)
	}
	for x.gone == nil && len(x.ahead) < cap(x.ahead) {
		n, err := x.client.Read(x.ahead[len(x.ahead):cap(x.ahead)])
		x.ahead = x.ahead[:len(x.ahead)+n]
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			x.gone = err
		}
		select {
		case <-x.wake:
			x.noDeadline()
			return true, false
		case <-x.over:
			return false, true
		default:
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			x.noDeadline()
			// INVARIANT: no wake is lost: one that came since the last look had its deadline
			// taken away just now; one that comes after this look sets it anew.
			select {
			case <-x.wake:
				return true, false
			default:
			}
		}
	}
	return false, false
}
