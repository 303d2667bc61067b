package electionapi

import (
	"context"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A sight is what the backend last said of an election that is watched.
type sight struct {
	st    election.StatusResult
	err   error
	asked time.Time // before the question; zero: not asked yet
}

// term is the number of the term that holds the election; zero: nobody does.
func (s *sight) term() int64 {
	if s.st.Status == election.Held {
		return s.st.Number
	}
	return 0
}

// A watch asks for all that watch one election. It lives as long as there is one.
type watch struct {
	id    string
	users int
	end   context.CancelFunc
	ended chan struct{}
	soon  chan struct{} // somebody wants to know now

	last sight
	news chan struct{} // closed when last changes, or when somebody waits for a look
	look bool          // somebody does
}

// join begins to watch an election; nil where too many watch already. Every join that is not
// nil is followed by a leave.
func (s *Service) join(id string) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers >= s.c.MaxWatchers {
		return nil
	}
	s.watchers++
	w := s.watches[id]
	if w == nil {
		ctx, end := context.WithCancel(context.Background())
		w = &watch{id: id, end: end, ended: make(chan struct{}), soon: make(chan struct{}, 1), news: make(chan struct{})}
		s.watches[id] = w
		go func() {
			defer close(w.ended)
			s.run(ctx, w)
		}()
	}
	w.users++
	w.look = true
	select {
	case w.soon <- struct{}{}:
	default:
	}
	return w
}

// leave ends one's watching; the last one waits for the end of the watch.
func (s *Service) leave(w *watch) {
	s.mu.Lock()
	s.watchers--
	w.users--
	last := w.users == 0
	if last {
		delete(s.watches, w.id)
	}
	s.mu.Unlock()
	if last {
		w.end()
		<-w.ended
	}
}

// run asks every so often, and when somebody wants to know.
func (s *Service) run(ctx context.Context, w *watch) {
	t := time.NewTicker(s.c.WatchEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.soon:
		}
		s.mu.Lock()
		look := w.look
		w.look = false
		s.mu.Unlock()
		now := sight{asked: time.Now()}
		now.st, now.err = s.ask(ctx, w.id)
		s.mu.Lock()
		changed := look || now.term() != w.last.term() || (now.err != nil) != (w.last.err != nil)
		w.last = now
		if changed {
			close(w.news)
			w.news = make(chan struct{})
		}
		s.mu.Unlock()
	}
}

// see is the last sight, and what closes at the next that is worth a look.
func (s *Service) see(w *watch) (sight, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.last, w.news
}

// first waits until the backend was asked after now. Older sights are of no use: who has just
// acquired would be told of the term before.
func (s *Service) first(ctx context.Context, w *watch, now time.Time) (sight, error) {
	for {
		at, news := s.see(w)
		if !at.asked.Before(now) {
			return at, at.err
		}
		select {
		case <-ctx.Done():
			return at, context.Cause(ctx)
		case <-news:
		}
	}
}

// watch waits until the term is another than the one with the number, or than now's where
// that is nil; zero is nobody's. It answers with the status and whether it changed, at the
// latest after so long.
func (s *Service) watch(ctx context.Context, id string, number *int64, wait time.Duration) (answer, *Problem) {
	began := time.Now()
	if p := checkID(id); p != nil {
		return nil, p
	}
	w := s.join(id)
	if w == nil {
		return nil, problem(TooManyWatchers)
	}
	defer s.leave(w)
	at, err := s.first(ctx, w, began)
	if err != nil {
		return nil, s.problem(election.OpStatus, err)
	}
	seen := at.term()
	if number != nil {
		seen = *number
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(wait))
	defer cancel()
	for {
		at, news := s.see(w)
		if at.err == nil && at.term() != seen {
			return append(statusAnswer(id, at.st), field{"changed", true}), nil
		}
		select {
		case <-news:
			continue
		case <-ctx.Done():
		}
		if at, _ = s.see(w); at.err != nil {
			return nil, s.problem(election.OpStatus, at.err)
		}
		return append(statusAnswer(id, at.st), field{"changed", at.term() != seen}), nil
	}
}

// stream tells send of the status now, of each change of the term, and every so often that
// nothing has changed, until ctx ends or send fails. What the backend does not answer is the
// outcome unknown.
func (s *Service) stream(ctx context.Context, id string, every time.Duration, send func(answer) error) *Problem {
	began := time.Now()
	if p := checkID(id); p != nil {
		return p
	}
	w := s.join(id)
	if w == nil {
		return problem(TooManyWatchers)
	}
	defer s.leave(w)
	if _, err := s.first(ctx, w, began); err != nil {
		return s.problem(election.OpStatus, err)
	}
	beat := time.NewTicker(every)
	defer beat.Stop()
	var seen int64
	answered := false // the last time that there was something to tell
	for due, first := true, true; ; first = false {
		at, news := s.see(w)
		a, changed := answer{{"election", id}, {"outcome", "unknown"}, {"changed", false}}, false
		if at.err == nil {
			changed = first || at.term() != seen
			seen = at.term()
			a = append(statusAnswer(id, at.st), field{"changed", changed})
		}
		if due || changed || answered != (at.err == nil) {
			if send(a) != nil {
				return nil // the caller is gone, or does not read
			}
		}
		answered, due = at.err == nil, false
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			due = true
		case <-news:
		}
	}
}

func checkID(id string) *Problem {
	if election.CheckID(id) != nil {
		return problem(InvalidElection)
	}
	return nil
}
