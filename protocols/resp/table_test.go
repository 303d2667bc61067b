package resp

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A deafControl is a server that does not answer.
type deafControl struct{}

func (deafControl) Do(ctx context.Context, args ...any) *redis.Cmd {
	<-ctx.Done()
	c := redis.NewCmd(ctx, args...)
	c.SetErr(ctx.Err())
	return c
}

// A server that does not answer holds up no session for longer than two questions take,
// however many begin.
func TestServerThatDoesNotAnswer(t *testing.T) {
	const sessions, timeout = 100, 200 * time.Millisecond
	tables := tables{control: deafControl{}, timeout: timeout}
	start := time.Now()
	var wg sync.WaitGroup
	for range sessions {
		wg.Go(func() {
			if _, err := tables.get(t.Context()); err == nil {
				t.Error("there is a table")
			}
		})
	}
	wg.Wait()
	if took := time.Since(start); took > sessions*timeout/4 {
		t.Errorf("it took %v", took)
	}
}
