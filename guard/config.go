package guard

import (
	"fmt"
	"log/slog"
	"time"
)

// Config tunes a Guard. The zero value is a working default.
type Config struct {
	// ValidateEvery is the time between two background validations of a permit;
	// zero means DefaultValidateEvery. At most half of PermitFor, so that a permit
	// outlives one question that went unanswered.
	ValidateEvery time.Duration
	// PermitFor is how long a permit holds after the question that the backend last
	// answered with current, measured from before that question; zero means
	// DefaultPermitFor. It is never longer than the lease's own time left.
	PermitFor time.Duration
	// Timeout bounds one question to the election backend; zero means
	// DefaultTimeout.
	Timeout time.Duration
	// AdvanceTimeout bounds one raise and sever of the fence; zero means
	// DefaultAdvanceTimeout.
	AdvanceTimeout time.Duration
	// Log receives takeovers and the ends of permits; nil means no log. Tokens never
	// reach it.
	Log *slog.Logger
}

// Defaults of Config.
const (
	DefaultValidateEvery  = 1 * time.Second
	DefaultPermitFor      = 5 * time.Second
	DefaultTimeout        = 2 * time.Second
	DefaultAdvanceTimeout = 30 * time.Second
)

// minAsk is the least time between two questions about one token, however short its
// lease is.
const minAsk = 20 * time.Millisecond

// maxFirst bounds the first questions asked at once, so that a flood of unknown
// tokens does not become a flood on the election backend.
const maxFirst = 64

// Check says what is wrong with c. New takes what is out of range as its default.
func (c Config) Check() error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"ValidateEvery", c.ValidateEvery}, {"PermitFor", c.PermitFor},
		{"Timeout", c.Timeout}, {"AdvanceTimeout", c.AdvanceTimeout},
	} {
		if f.d < 0 {
			return fmt.Errorf("guard: %s is %v, must not be negative", f.name, f.d)
		}
	}
	d := c.defaults()
	if d.ValidateEvery > d.PermitFor/2 {
		return fmt.Errorf("guard: ValidateEvery is %v, must be at most half of PermitFor (%v)", d.ValidateEvery, d.PermitFor)
	}
	return nil
}

func (c Config) defaults() Config {
	def := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	def(&c.ValidateEvery, DefaultValidateEvery)
	def(&c.PermitFor, DefaultPermitFor)
	def(&c.Timeout, DefaultTimeout)
	def(&c.AdvanceTimeout, DefaultAdvanceTimeout)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// askAgain is how long to wait before the next question, when a permit holds for d
// from the last one on.
func (c Config) askAgain(d time.Duration) time.Duration {
	return max(min(c.ValidateEvery, d/2), minAsk)
}
