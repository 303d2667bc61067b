// Package examples holds the tests that run each program of the folder examples, with
// its own configuration, to a takeover and back: one worker leads and writes; it is
// stopped in the middle of its work for longer than its lease; another leads and writes;
// the first goes on and its write is refused. Then the second ends in order, and the
// first leads again at once.
//
// The programs are run as their READMEs say. A program that the machine lacks fails its
// test; make deps installs it.
package examples
