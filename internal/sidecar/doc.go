// Package sidecar campaigns in elections on behalf of listeners, whose clients then need know
// nothing of elections: they write while the process leads.
//
// It promises that a listener is offered a credential only while the process leads, its trust in
// the lease lasts, and the guard of that listener holds a live permit for it: every connection of
// older terms is gone by then. It does not promise that a session which was bound is ended when
// leadership is lost; that is the guard's and the fence's, as for any session.
//
//	                     elected            the guard admits
//	following -----------------> taking over ---------------> leading
//	    ^                             |                           |
//	    |------- trust ended ---------/<----- permit ended -------/
//
// The token of the campaign stays in the process: it goes to the election backend and to the
// guard, as any credential, and to nobody else.
package sidecar
