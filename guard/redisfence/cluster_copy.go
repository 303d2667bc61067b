package redisfence

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
)

// encodeCopy is the value of a copy: "n:digest:raise". It has no state: who may bind the
// home says.
func encodeCopy(r guard.Record) string {
	return strconv.FormatInt(r.Highest, 10) + ":" + r.Holder.String() + ":" + hex.EncodeToString(r.Raise[:])
}

// copyNumber is the number in a copy, zero where there is none.
func copyNumber(value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	n, _, _ := strings.Cut(value, ":")
	number, err := strconv.ParseInt(n, 10, 64)
	if err != nil || number <= 0 || strconv.FormatInt(number, 10) != n {
		return 0, fmt.Errorf("%w (a copy of %d bytes)", ErrCorrupt, len(value))
	}
	return number, nil
}

// putCopy writes a copy, unless the one that is there has a higher number: that one is the
// answer then. Of the same number the last one stays, which is no harm: it lets nobody
// bind whose record is not at home. Numbers are compared as texts, since a script's are
// exact to 53 bits only. It runs also where memory is exhausted.
const putCopy = `#!lua flags=allow-oom
local v = redis.call('GET', KEYS[1])
if v then
  local n, mine = string.match(v, '^([1-9]%d*):') or v, ARGV[1]
  if #n > #mine or #n == #mine and n > mine then return v end
end
redis.call('SET', KEYS[1], ARGV[2])
return ''
`

func putArgs(key string, r guard.Record) []any {
	return []any{"EVAL", putCopy, 1, key, strconv.FormatInt(r.Highest, 10), encodeCopy(r)}
}

// putAnywhere writes the copy of a slot at the node that has the slot now.
func (f *ClusterFence) putAnywhere(ctx context.Context, electionID string, slot int, r guard.Record) error {
	key := copyKey(electionID, slot)
	there, err := f.do(ctx, key, retry, putArgs(key, r)...).Text()
	return copyPut(electionID, key, there, r, err)
}

// copyPut is what the answer to putCopy means.
func copyPut(electionID, key, there string, r guard.Record, err error) error {
	if err != nil {
		return fmt.Errorf("writing %s: %w", key, explain(err))
	}
	above, err := copyNumber(there)
	switch {
	case err != nil:
		return fmt.Errorf("writing %s: %w", key, err)
	case above > r.Highest:
		return &guard.BoundAboveError{Election: electionID, Number: above}
	case above > 0:
		return fmt.Errorf("writing %s: %w", key, ErrCorrupt)
	}
	return nil
}

// getCopy is the copy of a slot at the node that has the slot now, empty if there is none.
func (f *ClusterFence) getCopy(ctx context.Context, electionID string, slot int) (string, error) {
	key := copyKey(electionID, slot)
	value, err := f.do(ctx, key, retry, "GET", key).Text()
	if err = ignoreNil(err); err != nil {
		return "", fmt.Errorf("reading %s: %w", key, explain(err))
	}
	return value, nil
}

// textOf is the text in an answer, empty where there was no key.
func textOf(c *redis.Cmd) (string, error) {
	s, err := c.Text()
	return s, ignoreNil(err)
}
