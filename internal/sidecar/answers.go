package sidecar

import (
	"context"
	"time"
)

const (
	// answersFor is how long an answer of the backend's counts, answersWithin how long a
	// question may take.
	answersFor    = time.Second
	answersWithin = time.Second
)

// Answers reports whether the election backend answers, by a question that fails where it does
// not. However many want to know, it is asked once a second, and one question at a time.
func Answers(ask func(context.Context) error) func(context.Context) bool {
	turn := make(chan struct{}, 1) // who holds it reads and writes what follows
	var asked time.Time
	var answered bool
	return func(ctx context.Context) bool {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return false // nobody listens
		}
		defer func() { <-turn }()
		if asked.IsZero() || time.Since(asked) >= answersFor {
			// Not the caller's context: its answer is others' too.
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersWithin)
			defer cancel()
			answered = ask(within) == nil
			asked = time.Now()
		}
		return answered
	}
}
