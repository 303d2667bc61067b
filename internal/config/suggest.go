package config

import "strings"

// suggest returns the word that was probably meant, or "" where none is near.
func suggest(got string, words []string) string {
	got = strings.ReplaceAll(strings.ToLower(got), "-", "_")
	best, bestAt := "", 1+max(1, len(got)/3)
	for _, w := range words {
		if d := distance(got, w); d < bestAt {
			best, bestAt = w, d
		}
	}
	return best
}

// distance is how many characters must be added, dropped, replaced or swapped with
// their neighbour to make b of a.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
