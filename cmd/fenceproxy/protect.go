package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// protects says whether this is about tables, not about the control database.
func (c *installCmd) protects() bool {
	return len(c.Protect) > 0 || c.Remove || c.Always || c.NewTables
}

// protection protects tables, or takes that away.
func (c *installCmd) protection(ctx context.Context, s *streams) error {
	switch {
	case c.Elections || len(c.Grant) > 0 || c.SCRAM:
		return usage("--elections, --grant and --scram are of the control database: run install for it first, without --protect")
	case !c.Remove && len(c.Protect) == 0:
		return usage("--always and --new-tables go with --protect")
	case c.Remove && (c.Always || c.NewTables || c.Print):
		return usage("--remove goes with --protect, --dsn and --control-dsn alone")
	}
	add, patterns, err := c.protections()
	if err != nil {
		return usage("--protect: %v", err)
	}
	if c.Print {
		sql, err := pgfence.ProtectSQL(c.Role)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		_, err = fmt.Fprintf(s.out, "%s\n-- Then the key is copied from the control database, the patterns are noted down, and\n-- SELECT fenceproxy.apply_protection(NULL) makes the triggers.\n", sql)
		return err
	}
	if c.DSN == "" {
		return usage("name the database of the tables with --dsn or FENCEPROXY_ADMIN_DSN")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	tables, err := connectAdmin(ctx, c.DSN)
	if err != nil {
		return err
	}
	defer tables.Close(context.WithoutCancel(ctx))
	control, err := connectAdmin(ctx, cmp.Or(c.Control, c.DSN))
	if err != nil {
		return err
	}
	defer control.Close(context.WithoutCancel(ctx))
	p := pgfence.Protector{Control: control, Tables: tables, Role: c.Role, NewTables: c.NewTables}
	if c.Remove {
		left, err := p.Unprotect(ctx, patterns)
		if err != nil {
			return c.explain(err)
		}
		return report(s, "no longer protected", left, "still protected")
	}
	done, rebind, err := p.Protect(ctx, add)
	if err != nil {
		return c.explain(err)
	}
	if err := report(s, "", done, "protected"); err != nil {
		return err
	}
	shadowed, err := p.Shadowed(ctx)
	if err != nil {
		return c.explain(err)
	}
	for _, line := range shadowed {
		fmt.Fprintf(s.out, "warning: %s\n", oneLine(line))
	}
	if len(done) == 0 {
		fmt.Fprintln(s.out, "no table matches yet: run this again when there is one (or see --new-tables)")
	}
	if rebind {
		fmt.Fprintln(s.out, "Leaders that are connected now must connect again to write these tables.")
	}
	return nil
}

func (c *installCmd) protections() (add []pgfence.Protection, patterns []string, err error) {
	for _, s := range c.Protect {
		if c.Remove && !strings.Contains(s, "=") {
			patterns = append(patterns, s)
			continue
		}
		p, err := pgfence.ParseProtection(s)
		if err != nil {
			return nil, nil, err
		}
		p.Always = c.Always
		add, patterns = append(add, p), append(patterns, p.Pattern)
	}
	return add, patterns, nil
}

// report lists the protected tables.
func report(s *streams, first string, tables []pgfence.ProtectedTable, how string) error {
	if first != "" {
		fmt.Fprintln(s.out, first)
	}
	for _, t := range tables {
		warning := ""
		if election.CheckID(t.Election) != nil {
			warning = ", which is no election's name: nobody can write it"
		}
		if _, err := fmt.Fprintf(s.out, "%s: %s by election %s%s\n", how, oneLine(t.Name), oneLine(t.Election), warning); err != nil {
			return err
		}
	}
	return nil
}

func connectAdmin(ctx context.Context, dsn string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, connectError(config.NewSecret(dsn), err)
	}
	return conn, nil
}

// explain says what to do about what the server refused.
func (c *installCmd) explain(err error) error {
	var e *pgconn.PgError
	switch {
	case errors.Is(err, pgfence.ErrSchema):
		return &exitError{exitFailure, fmt.Errorf("%v holds no fence, or one of an older version: name the control database with --control-dsn, or run first: fenceproxy install --dsn … for it", config.NewSecret(cmp.Or(c.Control, c.DSN)))}
	case errors.As(err, &e) && e.Code == "55P03":
		return &exitError{exitFailure, fmt.Errorf("a table stayed locked for too long by other transactions; nothing was changed, try again: %w", err)}
	}
	return fmt.Errorf("protecting tables in %v: %w", config.NewSecret(c.DSN), err)
}
