package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// askControl logs in as the control connection of the fence does, so that the server's own
// code says what is wrong with it.
func askControl(ctx context.Context, l *config.Listener, f fence) error {
	switch f := f.(type) {
	case *redisfence.ClusterFence:
		err := f.Topology().Refresh(ctx)
		var reply redis.Error
		if errors.As(err, &reply) && find(err) != badLogin {
			return nil // the fence's own check says what a server's answer means
		}
		return err
	case *redisfence.Fence:
		if err := f.Do(ctx, "PING").Err(); err != nil && find(err) != noRights {
			return err // a user without PING may still do: the fence's own check says
		}
		return nil
	}
	conn, err := pgx.Connect(ctx, l.Control.Reveal())
	if err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			return refused
		}
		if inner := errors.Unwrap(err); inner != nil {
			return inner // it names the address; the outer one, user and database too
		}
		return err
	}
	return conn.Close(ctx)
}

// controlAdvice is what to do about a problem of the fence. Where that is the user's
// ACL rules, rules is true: aclCommand has them.
func controlAdvice(l *config.Listener, p guard.Problem) (fix string, rules bool) {
	if l.Protocol == config.Postgres {
		switch p.Kind {
		case guard.NotInstalled:
			return controlInstall(l), false
		case guard.NeedlessRights:
			return "Better name the role in control that fenceproxy install made.", false
		}
	} else if p.Kind == guard.LacksRights || p.Kind == guard.NoConnection {
		// Whoever could log in (askControl) has the right address, user and password.
		return "Give the user the rights below; commands that fencing needs must not be renamed.", true
	}
	return p.Fix, false
}

// aclCommand gives the control user of a listener its rights.
func aclCommand(l *config.Listener) string {
	if l.Group == config.Cluster {
		return fmt.Sprintf("ACL SETUSER %s %s", userOf(l.Control, "fenceproxy on >PASSWORD"), redisfence.ClusterRules)
	}
	return fmt.Sprintf("ACL SETUSER %s %s", userOf(l.Control, "fenceproxy on >PASSWORD"), redisfence.Rules)
}
