// Package pg is the proxy for the Postgres wire protocol: one upstream connection a
// client, everything forwarded undecoded but what has to be understood.
//
// It promises that nothing but reads goes upstream before the session presented a live
// token and its upstream connection was bound to the token's term in the server itself,
// and that a session whose permit ended writes nothing more and gets one clear FATAL.
// A session without a live token reads: the server runs it read-only, and statements
// that a read-only transaction would let through are refused here. A refusal leaves the
// stream in the state that a failed statement leaves it in, in pipelines too.
//
// Where a listener has rules, a bound session writes only what its elections rule, as far as
// the words of its statements tell; and what is open to everybody is written without a
// token, in transactions in which nothing else goes.
//
// It does not recall what was already sent: that is what severing is for. It does not
// see into functions and views: what those do in a read-only transaction (NOTIFY, session-level
// advisory locks, work handed to other sessions) is the server's to allow.
package pg
