// Package respdiff sends the same bytes to a Redis or Valkey server and to the proxy in front
// of it, and compares what comes back: every byte, the order of replies and pushes, the
// close, and what the database holds afterwards.
//
// It promises that a session that is bound, and one that only reads, sees what it would see
// of the server itself: on every version that fenceproxy is tested with, in RESP2 and RESP3,
// for every command that the server lists, and however the bytes are cut. What must differ is
// listed in one place, with the reason (normalisations in normal_test.go); a command that is
// refused must be answered as an unknown one in its place would be, but for the words.
//
// It says nothing of what a stale leader sees: that is the business of package integration.
//
// The histories are files in testdata. Each holds what the client does and, below that, what
// the server itself answers, with the versions that answer so; go test -update rewrites that
// part. The commands are described at the parser in script_test.go. The calls of every
// command are made from what the server says of its arguments (COMMAND DOCS).
package respdiff
