// Package integration holds the tests that run the whole of fenceproxy against
// real servers: takeover races, stopped and killed proxies, and Redis clients. Those of
// Postgres are in pgclients. Sidecar listeners are tested with programs that know nothing of
// elections, psql in a loop among them, and with HAProxy.
//
// The races come in pairs: one with the fence whole, which must find no late
// write, and one with a safety step taken out, which must find some. A race that
// cannot fail proves nothing.
//
// FENCEPROXY_LONG=1 (make race-long) runs the long form.
package integration
