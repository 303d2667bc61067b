package postgres

import (
	"testing"

	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// GORM's own handle keeps elections, with its users' two common settings.
func TestGORMHandle(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	for name, simple := range map[string]bool{"prepared": false, "simple protocol": true} {
		t.Run(name, func(t *testing.T) {
			g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{DSN: x.dsn(x.server.Addr), PreferSimpleProtocol: simple}),
				&gorm.Config{Logger: logger.Discard})
			if err != nil {
				t.Fatal(err)
			}
			db, err := g.DB()
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			b, err := NewDB(db, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			ctx, id := t.Context(), testenv.Name(t, "gorm")
			got, err := b.Acquire(ctx, id, election.AcquireOptions{Owner: "a"})
			if err != nil || got.Status != election.Acquired {
				t.Fatalf("%+v, %v", got, err)
			}
			if busy, err := b.Acquire(ctx, id, election.AcquireOptions{Owner: "b"}); err != nil || busy.Status != election.Busy || busy.Owner != "a" {
				t.Errorf("%+v, %v", busy, err)
			}
			if r, err := b.Renew(ctx, id, got.Token); err != nil || r.Status != election.Renewed || r.Number != got.Number {
				t.Errorf("%+v, %v", r, err)
			}
			if v, err := b.Validate(ctx, id, got.Token); err != nil || v.Standing != election.StandingCurrent || v.Number != got.Number {
				t.Errorf("%+v, %v", v, err)
			}
			if r, err := b.Resign(ctx, id, got.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
				t.Errorf("%+v, %v", r, err)
			}
			if s, err := b.Status(ctx, id); err != nil || s.Status != election.Vacant || s.Number != got.Number {
				t.Errorf("%+v, %v", s, err)
			}
			// The handle is GORM's still.
			var one int
			if err := g.Raw("SELECT 1").Scan(&one).Error; err != nil || one != 1 {
				t.Errorf("%d, %v", one, err)
			}
		})
	}
}
