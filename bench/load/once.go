package load

import "context"

// WriteOnce connects to a target, bound where it is to be fenced, and writes once. It
// returns when the write is applied.
func WriteOnce(ctx context.Context, wire string, t *Target) error {
	open := redisRequests("writes")
	if wire == Postgres {
		open = pgWrites
	}
	s, err := open(ctx, t, 0)
	if err != nil {
		return err
	}
	defer s.close()
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	return s.do()
}

// Held are sessions that do nothing.
type Held struct{ all []session }

// Hold opens n sessions of a target, bound where it is to be fenced.
func Hold(ctx context.Context, wire string, t *Target, n int) (*Held, error) {
	open := opener(openIdleRedis)
	if wire == Postgres {
		open = openIdlePg
	}
	all, err := openSessions(ctx, n, func(ctx context.Context, i int) (session, error) { return open(ctx, t, i) })
	if err != nil {
		return nil, err
	}
	return &Held{all}, nil
}

// Close closes them.
func (h *Held) Close() { closeSessions(h.all) }
