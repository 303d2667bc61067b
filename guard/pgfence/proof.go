package pgfence

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/guard"
)

// A proof shows a trigger in another database of the cluster that its own server process is
// bound to a term: the number, and a keyed digest of process, start, number and election.
//
// INVARIANT: who has not the key makes none; the digest names the process and its start,
// which no later process shares, so that a proof dies with the process that a sever ends.
// It is no secret: a session may see its own, and a log may hold it.

// macSQL is the SQL of the hexadecimal digest, by the key k.key. Number and election are
// text; the numbers hold no slash, and the election comes last, so that no two proofs are
// of one text.
func macSQL(pid, start, number, election string) string {
	// The inner digest keeps it from being prolonged by who has not the key.
	return fmt.Sprintf(`pg_catalog.encode(pg_catalog.sha256(k.key || pg_catalog.sha256(k.key || pg_catalog.convert_to(
		%s || '/' || (extract(epoch FROM %s) * 1000000)::bigint || '/' || %s || '/' || %s, 'UTF8'))), 'hex')`, pid, start, number, election)
}

// proofOf is the proof of a term, from what macSQL gave.
func proofOf(t guard.Term, mac []byte) string {
	if len(mac) == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%s", t.Number, mac)
}
