package resp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/policy"
)

// tableAge is how old a command table may be when a session begins.
const tableAge = time.Minute

// maxExtra bounds the names remembered beside those that the server lists.
const maxExtra = 1024

// A table holds what the server says of its commands, by the names under which it knows
// them. A name that is not in it is asked for: a renamed command is listed under its
// first name only.
type table struct {
	listed  map[string]*command
	cluster mode // whether the server is a node of a cluster

	mu    sync.RWMutex
	extra map[string]*command // asked for one by one; nil for what is no command
}

func (t *table) lookup(name []byte) (*command, bool) {
	if c := t.listed[string(name)]; c != nil {
		return c, true
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, known := t.extra[string(name)]
	return c, known
}

// resolve asks the server for one name and remembers the answer.
func (t *table) resolve(ctx context.Context, control Control, name string) error {
	got, err := describe(ctx, control, name)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.extra) >= maxExtra {
		clear(t.extra)
	}
	t.extra[name] = got[0]
	return nil
}

// loadTable asks the server for all its commands. Each listed name is asked for again,
// since the list shows first names: what the server runs under a name is what it
// describes under that name.
func loadTable(ctx context.Context, control Control) (*table, error) {
	list, err := control.Do(ctx, "COMMAND").Slice()
	if err != nil {
		return nil, fmt.Errorf("asking for the command table: %w", err)
	}
	var names []string
	for _, e := range list {
		c, err := policy.ParseRedisCommand(e)
		if err != nil {
			return nil, fmt.Errorf("reading the command table: %w", err)
		}
		names = append(names, c.Name)
	}
	described, err := describe(ctx, control, names...)
	if err != nil {
		return nil, err
	}
	t := &table{listed: make(map[string]*command, len(names)), extra: make(map[string]*command), cluster: modeOf(ctx, control)}
	for i, c := range described {
		if c != nil {
			t.listed[names[i]] = c
		}
	}
	return t, nil
}

// A mode says whether a server is a node of a cluster. The zero value is that nobody knows.
type mode uint8

const (
	single mode = iota + 1
	clustered
)

// modeOf asks the server. A control user who may not ask is none the wiser.
func modeOf(ctx context.Context, control Control) mode {
	info, err := control.Do(ctx, "INFO", "cluster").Text()
	if err != nil {
		return 0
	}
	switch redisfence.ParseInfo(info)["cluster_enabled"] {
	case "0":
		return single
	case "1":
		return clustered
	}
	return 0
}

var errTable = errors.New("the server's command table is not understood")

// describe asks for commands by name; those that do not exist are nil.
func describe(ctx context.Context, control Control, names ...string) ([]*command, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errTable)
	}
	args := []any{"COMMAND", "INFO"}
	for _, n := range names {
		args = append(args, n)
	}
	reply, err := control.Do(ctx, args...).Slice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("asking what commands are: %w", err)
	}
	if len(reply) != len(names) {
		return nil, fmt.Errorf("%w: %d answers to %d names", errTable, len(reply), len(names))
	}
	all := make([]*command, len(names))
	for i, name := range names {
		e := reply[i]
		if e == nil {
			continue
		}
		p, err := policy.ParseRedisCommand(e)
		if err != nil {
			return nil, fmt.Errorf("reading what %q is: %w", strings.ToValidUTF8(name, "?"), err)
		}
		all[i] = newCommand(p)
	}
	return all, nil
}

// tables keeps the newest table of one server.
type tables struct {
	control Control
	timeout time.Duration
	suspect atomic.Bool // the server closed connections: it may be another one by now

	mu      sync.Mutex // held while the server is asked
	newest  *table
	loaded  time.Time
	asked   time.Time // when the last question that failed was asked
	failure error     // what came of it
}

// get returns a table that is fresh enough for a session that begins. One that is merely
// old serves on while the server cannot be asked.
//
// Sessions that wait for a question of another's share its failure: a server that does not
// answer holds up each of them once, and not all of them one after the other.
func (t *tables) get(ctx context.Context) (*table, error) {
	came := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newest != nil && !t.suspect.Load() && time.Since(t.loaded) < tableAge {
		return t.newest, nil
	}
	if t.failure != nil && t.asked.After(came) {
		return t.old(t.failure)
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	asked, suspect := time.Now(), t.suspect.Swap(false) // anew if it closes connections meanwhile
	fresh, err := loadTable(ctx, t.control)
	if err != nil {
		if suspect {
			t.suspect.Store(true)
		}
		if !errors.Is(ctx.Err(), context.Canceled) { // that is the end of this session alone
			t.asked, t.failure = asked, err
		}
		return t.old(err)
	}
	t.newest, t.loaded, t.failure = fresh, time.Now(), nil
	return fresh, nil
}

// old is the table that there is, if it may still serve where another cannot be had.
func (t *tables) old(err error) (*table, error) {
	if t.newest != nil && !t.suspect.Load() {
		return t.newest, nil
	}
	return nil, err
}

// suspectIt makes the next session load the table anew.
func (t *tables) suspectIt() { t.suspect.Store(true) }
