// Package pgdiff sends the same bytes to a Postgres server and to the proxy in front of
// it, and compares what comes back: every byte, the order of messages, and the close.
//
// It promises that a session that is bound, and one that only reads, sees what it would
// see of the server itself: on every major version that fenceproxy is tested with, and
// however the bytes are cut. What must differ is listed in one place, with the reason
// (normalisations in normal_test.go); where a whole case differs on purpose, its file
// says why and holds the proxy's answer beside the server's.
//
// It says nothing of what a stale leader sees: that is the business of package integration.
//
// The cases are files in testdata. Each holds what the client does and, below that, what
// the server itself answers, with the versions that answer so; go test -update rewrites
// that part. The commands are described at the parser in script_test.go.
package pgdiff
