package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

type installCmd struct {
	DSN       string        `name:"dsn" env:"FENCEPROXY_ADMIN_DSN" placeholder:"URL" help:"The control database, as a superuser: postgres://postgres@host/database. Prefer the environment variable where it holds a password."`
	Role      string        `default:"fenceproxy" help:"The control role; made if missing, able to log in, without a password."`
	Elections bool          `help:"Also make the table of elections, for an election backend of postgres://."`
	Grant     []string      `placeholder:"ROLE" help:"With --elections: let these roles campaign, besides the control role."`
	SCRAM     bool          `name:"scram" help:"Also let the control role look up SCRAM verifiers, for scram_verifiers: control. Needs a superuser."`
	Protect   []string      `placeholder:"TABLES=ELECTION" sep:"none" help:"Let only the leader of ELECTION write the tables that match (schema.table, with * ? and {name}), also without the proxy. --dsn then names the database of the tables."`
	Remove    bool          `help:"Take the protection of all tables away, or with --protect that of these patterns."`
	Always    bool          `help:"With --protect: also refuse sessions with session_replication_role=replica, and what logical replication applies. Costs a call for each row."`
	NewTables bool          `help:"With --protect: also protect tables that match as they are made, by an event trigger. Needs a superuser."`
	Control   string        `name:"control-dsn" env:"FENCEPROXY_CONTROL_DSN" placeholder:"URL" help:"With --protect and --remove: the control database, where that is another than --dsn."`
	Print     bool          `help:"Print the SQL and connect to nothing."`
	Timeout   time.Duration `default:"30s" help:"How long to wait for the server."`
}

// Help has examples.
func (installCmd) Help() string {
	return `Installs the schema fenceproxy and the control role, once a cluster. It may be run again. Redis and Valkey need no installation.

Examples:

  fenceproxy install --print
  fenceproxy install --dsn postgres://postgres@localhost/postgres
  fenceproxy install --elections --grant app
  fenceproxy install --scram
  fenceproxy install --protect 'billing.*=billing' --dsn postgres://postgres@localhost/app --control-dsn postgres://postgres@localhost/postgres
  fenceproxy install --remove --dsn postgres://postgres@localhost/app --control-dsn postgres://postgres@localhost/postgres`
}

// Run installs or prints.
func (c *installCmd) Run(ctx context.Context, s *streams) error {
	if c.protects() {
		return c.protection(ctx, s)
	}
	sql, err := c.sql()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if c.Print {
		_, err := fmt.Fprint(s.out, sql)
		return err
	}
	if c.DSN == "" {
		return usage("name the control database with --dsn or FENCEPROXY_ADMIN_DSN, or look at the SQL with --print")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	at := config.NewSecret(c.DSN)
	conn, err := connectAdmin(ctx, c.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// Without arguments this is the simple protocol, which takes several statements.
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("installing in %v: %w", at, err)
	}
	_, err = fmt.Fprintf(s.out, "installed: schema fenceproxy and role %s, in %v\nGive the role a password if your server asks for one, then run: fenceproxy check -c fenceproxy.yaml\n", c.Role, at)
	return err
}

func (c *installCmd) sql() (string, error) {
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Role: c.Role, Login: true, SCRAM: c.SCRAM})
	if err != nil {
		return "", err
	}
	if !c.Elections {
		if len(c.Grant) > 0 {
			return "", errors.New("--grant goes with --elections")
		}
		return sql, nil
	}
	var b strings.Builder
	b.WriteString(sql)
	table, err := postgres.SchemaSQL("")
	if err != nil {
		return "", err
	}
	b.WriteString("\n-- The table of elections.\n" + table)
	for _, role := range append([]string{c.Role}, c.Grant...) {
		grant, err := postgres.GrantSQL("", role)
		if err != nil {
			return "", err
		}
		b.WriteString(grant)
	}
	return b.String(), nil
}

// connectError says why a Postgres server could not be connected to, without the
// password of the URL, which the driver's own error may hold.
func connectError(at config.Secret, err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return usage("%v is not a connection URL", at)
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return &exitError{exitFailure, fmt.Errorf("connecting to %v: %s (SQLSTATE %s)", at, refused.Message, refused.Code)}
	}
	return &exitError{exitUnavailable, fmt.Errorf("connecting to %v: no answer: %w", at, errors.Unwrap(err))}
}
