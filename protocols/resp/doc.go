// Package resp is the proxy for Redis and Valkey: it speaks RESP2 and RESP3, and lets a
// session write only while its upstream connection is bound to a live term.
//
// It promises that no command that may write or publish is passed on unless the
// session's permit is live and the server, a primary, has named the connection for the
// permit's term and then shown the fence severed at that term; that nothing a bound session
// sends takes the name off; and that tokens go neither upstream nor into a log. What it
// passes on it passes on unchanged but for that, in order, and the server answers; a
// refused command is answered in its place.
//
// It does not promise that a write whose reply had not come when the session ended was
// not applied. It does not keep scripts of the leader's from writing a fence's key that
// they make up themselves, and it follows no redirections of a cluster for its clients: it
// tells them the proxy's addresses (Cluster).
//
// A session is a core, which is pure, in a shell of two pumps, one a direction: the
// client's pump alone writes upstream, the server's pump alone writes to the client.
package resp
