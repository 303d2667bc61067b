package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DefaultSchema is the schema of the table when Options.Schema is empty.
const DefaultSchema = "fenceproxy"

var (
	// ErrNotInstalled: the table does not exist, or not as this version needs it. It
	// comes with election.ErrUnavailable.
	ErrNotInstalled = errors.New("the election table is not installed")
	// ErrInvalidSchema: the name breaks the rules of CheckSchema.
	ErrInvalidSchema = errors.New("invalid schema name")
)

// CheckSchema reports whether name may be the schema: 1 to 63 characters of a-z 0-9 _
// that do not begin with a digit or with pg_. The error is ErrInvalidSchema.
func CheckSchema(name string) error {
	if name == "" || len(name) > 63 || strings.HasPrefix(name, "pg_") {
		return fmt.Errorf("%w %.70q: must be 1 to 63 characters and not begin with pg_", ErrInvalidSchema, name)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if 'a' <= c && c <= 'z' || c == '_' || i > 0 && '0' <= c && c <= '9' {
			continue
		}
		return fmt.Errorf("%w %q: character %d must be one of a-z, _ or, after the first, a digit", ErrInvalidSchema, name, i+1)
	}
	return nil
}

// SchemaSQL returns the statements that make the table and its schema, where they do
// not exist. Empty means DefaultSchema.
func SchemaSQL(schema string) (string, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if err := CheckSchema(schema); err != nil {
		return "", err
	}
	return strings.ReplaceAll(schemaSQL, "SCHEMA_NAME", quote(schema)), nil
}

// GrantSQL returns the statements that give a role what a Backend needs, and no more.
func GrantSQL(schema, role string) (string, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if err := CheckSchema(schema); err != nil {
		return "", err
	}
	if role == "" || len(role) > 63 || strings.ContainsRune(role, 0) {
		return "", fmt.Errorf("role name of %d bytes: must be 1 to 63", len(role))
	}
	return fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;\nGRANT SELECT, INSERT, UPDATE ON %[1]s.election TO %[2]s;\n",
		quote(schema), quote(role)), nil
}

const schemaSQL = `CREATE SCHEMA IF NOT EXISTS SCHEMA_NAME;
CREATE TABLE IF NOT EXISTS SCHEMA_NAME.election (
    election   text COLLATE "C" PRIMARY KEY,
    number     bigint NOT NULL CHECK (number > 0), -- the last number granted
    owner      text,        -- the holder and its lease; all null when it was resigned
    digest     bytea CHECK (octet_length(digest) = 32),
    ttl_ms     bigint CHECK (ttl_ms > 0),
    expires_at timestamptz,
    CHECK (num_nulls(owner, digest, ttl_ms, expires_at) IN (0, 4))
) WITH (fillfactor = 50);
COMMENT ON TABLE SCHEMA_NAME.election IS
    'Elections of fenceproxy. Rows stay when a holder is gone: they remember fencing numbers.';
`

// EnsureSchema makes the table and its schema, where they do not exist. Any number of
// processes may do so at once. Where they exist, it needs no rights to make them.
func (b *Backend) EnsureSchema(ctx context.Context) error {
	const doing = "installing the table of"
	id := b.queries.schema
	var exists bool
	if err := b.row(ctx, doing, id, b.queries.installed, nil, &exists); err != nil || exists {
		return err
	}
	// The lock ends with the transaction that all the statements are in. Without it,
	// two that make a schema at once can both find that there is none.
	const lock = "SELECT pg_advisory_xact_lock(hashtextextended('fenceproxy install', 0));\n"
	if err := b.db.exec(ctx, lock+b.queries.install); err != nil {
		return b.failed(ctx, doing, id, err)
	}
	return nil
}

// quote quotes an identifier.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
