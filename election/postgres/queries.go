package postgres

import "strings"

// queries are the statements, for one schema. Each but read returns exactly one row.
//
// All of them judge a lease by clock_timestamp(): now() would be the time at which a
// statement began that has since waited for a lock.
type queries struct {
	schema                 string
	install, installed     string
	acquire, renew, resign string
	resignQuietly          string
	read, readAlways       string
}

func newQueries(schema string) (queries, error) {
	install, err := SchemaSQL(schema)
	if err != nil {
		return queries{}, err
	}
	if schema == "" {
		schema = DefaultSchema
	}
	in := func(query string) string {
		return strings.ReplaceAll(query, "ELECTION_TABLE", quote(schema)+".election")
	}
	return queries{
		schema:    schema,
		install:   install,
		installed: "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = '" + schema + "' AND tablename = 'election')",
		acquire:   in(acquireSQL),
		renew:     in(renewSQL),
		resign:    strings.ReplaceAll(in(resignSQL), "TABLE_SCHEMA", schema),

		resignQuietly: in(resignQuietlySQL),

		read:       in(readSQL),
		readAlways: in(readAlwaysSQL),
	}, nil
}

// acquireSQL: $1 election, $2 owner, $3 digest, $4 ttl in ms, $5 floor. It returns
// whether the election was granted, and then the grant; else who holds it, with the
// microseconds left; else no microseconds: another was faster, ask again.
//
// A live holder is seen without a lock or a write: candidates ask often. Safety rests
// on the second look, ON CONFLICT's WHERE, which is taken at the newest version of the
// row, locked. Of two candidates that both saw a vacant row, the second looks after
// the first has committed. A row that is not there yet is guarded by the primary key.
//
// SET takes all from one reading of the clock, so that a lease that ends in between
// cannot give a new number to the old owner. A live lease is never shortened: this may be
// an earlier request that arrives late, and a later one was told of a longer lease.
const acquireSQL = `
WITH seen AS MATERIALIZED (
    SELECT owner, number, expires_at, digest = $3::bytea AS own, clock_timestamp() AS now
    FROM ELECTION_TABLE WHERE election = $1::text
), granted AS (
    INSERT INTO ELECTION_TABLE AS e (election, number, owner, digest, ttl_ms, expires_at)
    SELECT $1::text, greatest(1, $5::bigint, floor(extract(epoch FROM now) * 1000)::bigint),
           $2::text, $3::bytea, $4::bigint, now + $4::bigint * interval '1 millisecond'
    FROM (SELECT clock_timestamp() AS now) clock
    WHERE NOT EXISTS (SELECT FROM seen WHERE expires_at > seen.now AND NOT own)
    ON CONFLICT (election) DO UPDATE
    SET (number, owner, digest, ttl_ms, expires_at) = (
        SELECT CASE WHEN live THEN e.number
                    ELSE greatest(e.number + 1, $5::bigint, floor(extract(epoch FROM now) * 1000)::bigint) END,
               CASE WHEN live THEN e.owner ELSE excluded.owner END,
               excluded.digest, ttl, now + ttl * interval '1 millisecond'
        FROM (SELECT now, live, CASE WHEN live THEN greatest(e.ttl_ms, excluded.ttl_ms) ELSE excluded.ttl_ms END AS ttl
              FROM (SELECT now, coalesce(e.expires_at > now, false) AS live
                    FROM (SELECT clock_timestamp() AS now) clock) known) mine
    )
    WHERE e.expires_at IS NULL OR e.expires_at <= clock_timestamp() OR e.digest = excluded.digest
    RETURNING owner, number, expires_at, clock_timestamp() AS now
)
SELECT granted.number IS NOT NULL,
       coalesce(granted.owner, seen.owner, ''),
       coalesce(granted.number, seen.number, 0),
       floor(extract(epoch FROM coalesce(granted.expires_at - granted.now,
           CASE WHEN NOT seen.own THEN seen.expires_at - seen.now END, interval '0')) * 1000000)::bigint
FROM (SELECT) one LEFT JOIN granted ON true LEFT JOIN seen ON true`

// renewSQL: $1 election, $2 digest. It returns the number, 0 when the lease is not this
// holder's, and the microseconds left.
const renewSQL = `
WITH renewed AS (
    UPDATE ELECTION_TABLE
    SET expires_at = clock_timestamp() + ttl_ms * interval '1 millisecond'
    WHERE election = $1::text AND digest = $2::bytea AND expires_at > clock_timestamp()
    RETURNING number, expires_at - clock_timestamp() AS rest
)
SELECT coalesce(max(number), 0), floor(extract(epoch FROM coalesce(max(rest), interval '0')) * 1000000)::bigint
FROM renewed`

// resignSQL: $1 election, $2 digest. It returns whether it was released, and notifies that
// in the same transaction.
const resignSQL = resign + "SELECT count(pg_catalog.pg_notify('" + releasedChannel + "', 'TABLE_SCHEMA.' || $1::text)) > 0 FROM released"

// resignQuietlySQL is resignSQL without the notification.
const resignQuietlySQL = resign + "SELECT count(*) > 0 FROM released"

const resign = `
WITH released AS (
    UPDATE ELECTION_TABLE SET owner = NULL, digest = NULL, ttl_ms = NULL, expires_at = NULL
    WHERE election = $1::text AND digest = $2::bytea AND expires_at > clock_timestamp()
    RETURNING 1
)
`

// released is what is notified of an election's release.
func (q queries) released(id string) string { return q.schema + "." + id }

// readSQL: $1 election. It returns the row, and whether the server is a standby: the last
// number, the owner and the digest of the holder, the seconds left, which are less than
// none when the lease has ended. An election that was never held has no row.
const readSQL = "SELECT " + readColumns + " FROM ELECTION_TABLE WHERE election = $1::text"

// readAlwaysSQL is readSQL with a row of nulls where there is none, so that a standby
// says what it is. That costs as much again to plan.
const readAlwaysSQL = "SELECT " + readColumns + " FROM (SELECT) one LEFT JOIN ELECTION_TABLE ON election = $1::text"

const readColumns = "pg_catalog.pg_is_in_recovery(), number, owner, digest, date_part('epoch', expires_at - clock_timestamp())"
