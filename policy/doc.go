// Package policy says what is a write: of SQL statements and of Redis commands.
//
// It promises that what it cannot tell is called a write. It is pure: no I/O, no
// clock, and nothing of the project imported. It does not decide who may write.
package policy
