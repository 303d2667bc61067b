// Package sidecar holds the tests of sidecar listeners: programs that know nothing of elections,
// psql in a loop among them, in front of two processes that campaign, with and without HAProxy.
package sidecar
