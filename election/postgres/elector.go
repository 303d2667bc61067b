package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// NewElector returns an elector for the election of that name, with a lease that lasts
// for that long and is renewed every heartbeat; zero means the defaults of
// election.ElectorConfig. The table must be in DefaultSchema (EnsureSchema makes it).
// The handle may be any that NewDB takes, GORM's too; it stays open. What else an
// ElectorConfig can say is said by functions that change it, as
//
//	postgres.NewElector(ctx, db, "orders", 15*time.Second, 5*time.Second, func(c *election.ElectorConfig) {
//		c.OnError = func(err error) { log.Warn("election", "err", err) }
//	})
func NewElector(ctx context.Context, db *sql.DB, name string, lease, heartbeat time.Duration, change ...func(*election.ElectorConfig)) (*election.Elector, error) {
	b, err := NewDB(db, Options{})
	if err != nil {
		return nil, err
	}
	c := election.ElectorConfig{Election: name, TTL: lease, Heartbeat: heartbeat}
	for _, f := range change {
		f(&c)
	}
	return election.NewElector(ctx, b, c)
}
