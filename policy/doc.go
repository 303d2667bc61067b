// Package policy says what a session without a live token may send, and what nobody may:
// SQL statements by the parser's tree, and Redis commands by the server's own command
// table. It also says what a statement writes, and under which election a name is written:
// SQLTargets, Rules.
//
// It promises that what it cannot tell counts as a write. It does not promise that what
// it calls a read has no effect inside the server beyond that connection's state and the
// server's statistics; and it decides nothing about who may write. It is pure: no I/O,
// no clock, and nothing of the project imported.
package policy
