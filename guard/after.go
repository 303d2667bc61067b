package guard

import "sync"

// afters are functions that are called when something has ended. The zero value is ready, and
// safe for concurrent use.
type afters struct {
	mu    sync.Mutex
	over  bool
	first *after
}

// An after is one of the functions, in the list of those that wait.
type after struct {
	of         *afters
	f          func()
	prev, next *after
	is         calling
	returned   chan struct{} // closed when f has returned; nil while nobody waits for that
}

// A calling is how far a function is.
type calling uint8

const (
	waiting calling = iota
	underWay
	settled // called, or stopped before
)

// add has f called by call, or at once if that was called.
func (l *afters) add(f func()) (stop func() bool) {
	a := &after{of: l, f: f}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		a.is = underWay
		go a.call() // stop waits for it
		return a.stop
	}
	if a.next = l.first; a.next != nil {
		a.next.prev = a
	}
	l.first = a
	return a.stop
}

// call calls all that were added, one after the other.
func (l *afters) call() {
	l.mu.Lock()
	l.over = true
	for a := l.first; a != nil; a = l.first {
		a.unlink()
		a.is = underWay
		l.mu.Unlock()
		a.call()
		l.mu.Lock()
	}
	l.mu.Unlock()
}

// call calls the function, which is under way.
func (a *after) call() {
	a.f()
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.is, a.f = settled, nil
	if a.returned != nil {
		close(a.returned)
	}
}

// stop is that of Permit.AfterFunc.
func (a *after) stop() bool {
	a.of.mu.Lock()
	switch a.is {
	case waiting:
		a.unlink()
		a.is, a.f = settled, nil
		a.of.mu.Unlock()
		return true
	case underWay:
		if a.returned == nil {
			a.returned = make(chan struct{})
		}
		returned := a.returned
		a.of.mu.Unlock()
		<-returned
	default:
		a.of.mu.Unlock()
	}
	return false
}

// unlink takes it out of those that wait.
func (a *after) unlink() {
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		a.of.first = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.prev, a.next = nil, nil
}
