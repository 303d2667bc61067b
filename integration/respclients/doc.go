// Package respclients holds the tests that run the usual Redis clients through a
// fenceproxy: what they print as leader must be, to the letter, what they print without
// it; as reader they read the same and every write is refused; and when their leadership
// ends in mid-pipeline, in a blocked command or between WATCH and EXEC, each shows an
// error, nothing that it sent too late is applied, and it goes on with a new connection.
//
// A program that the machine lacks fails its tests; make deps installs it.
package respclients
