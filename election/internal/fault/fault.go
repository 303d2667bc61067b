// Package fault words the errors of election backends alike.
package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// Unavailable wraps err as election.ErrUnavailable, with what was being done to
// which election. Where the context has ended, the error is the context's too: a
// driver that reports the deadline as a time-out of its socket hides that.
func Unavailable(ctx context.Context, doing, id string, err error) error {
	if ended := Ended(ctx); ended != nil && !errors.Is(err, ended) {
		if err == nil {
			err = ended
		} else {
			err = fmt.Errorf("%w (%w)", ended, err)
		}
	}
	return fmt.Errorf("%s %q: %w: %w", doing, id, election.ErrUnavailable, err)
}

// Ended returns the context's error once its deadline has passed, also in the
// moment before its timer has fired.
func Ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// Corrupt wraps election.ErrCorrupt with what is wrong with which election's record.
func Corrupt(doing, id, what string) error {
	return fmt.Errorf("%s %q: %w: %s", doing, id, election.ErrCorrupt, what)
}

// Closed is the error of a call to a closed backend.
func Closed(doing, id string) error {
	return fmt.Errorf("%s %q: %w", doing, id, election.ErrClosed)
}
