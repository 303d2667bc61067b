// Package pgclients holds the tests that run the usual Postgres clients through a
// fenceproxy: what they print as leader must be, to the letter, what they print
// without it; as reader they read the same and every write is refused; and when their
// leadership ends in the middle of a transaction, each shows one error as its own
// exception and goes on with a new connection.
//
// A program that the machine lacks fails its tests; make deps installs it.
package pgclients
