// Package gates holds the race of gates: consumers in processes of their own bind partitions
// through two gates, and consumers and gates are stopped, let go on and killed at random.
// Each consumer writes down what it believes, by a clock that all processes share, before it
// believes it; no two beliefs in one partition may overlap.
//
// The race comes with its counterpart, as in package integration: gates without their lease,
// which must make overlaps. FENCEPROXY_LONG=1 runs the long form.
package gates
