// Package bench holds what a benchmark measured and says what follows from it: slices
// of one run, ratios by pairs, latencies, a report, plots, and the comparison of two
// reports.
//
// It promises that a ratio is one of two slices of the same round of the same run, and
// that a latency counts from when a request was due, not from when it could be sent. It
// does not promise that a time means anything on another machine, or on the same
// machine an hour later: only ratios are compared between reports.
//
// # The method
//
// Every way to the server (direct, each peer, the proxy) is a target. A scenario is
// measured in rounds; in a round each target has one slice of a second or two, and every
// second round goes through the targets backwards, so that what drifts (heat, caches,
// other programs) falls on all alike. All of a round's slices are pairs: the throughput
// of a target beside that of another is the ratio of their two slices, taken by round,
// and the report says the median of those ratios and the quartiles around it.
//
// A closed loop has so many clients that each send when they have their answer: it finds
// the throughput. An open loop sends at a rate that does not depend on the answers:
// request k of a connection is due at start + k x interval, and its latency runs from
// there to its answer. So a stall is charged to every request that had to wait for it,
// and not only to the one that met it (coordinated omission). The rate is the same for
// all targets: a half of what the slowest did in a closed loop just before, unless it is
// given. What was due and not sent by the end counts with the time that it had waited.
//
// Latencies are kept in HdrHistograms of three digits. Processor time is what the kernel
// charged to a process and all its children (/proc/PID/stat); divided by the operations
// of the slice it is the cost of one operation in that process. Memory of a connection is
// the growth of the processes' proportional set size (smaps_rollup) with that many idle
// connections open; what the kernel keeps for sockets is not in it.
//
// The load comes from pgbench and redis-benchmark where the report says so, else from
// this program: one thread a connection, blocking reads and writes.
package bench
