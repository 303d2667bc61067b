//go:build race

package pg

// raceEnabled: the race detector makes pools forget.
const raceEnabled = true
