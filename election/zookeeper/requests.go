package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// How often a call begins in all.
const (
	triesLost = 3   // when connections are lost under it
	triesBusy = 100 // when somebody else is quicker
)

// errAgain is what a step returns when the election changed under it.
var errAgain = errors.New("the election changed meanwhile")

// each runs step in a live session until it is through: again where somebody else was
// quicker, and where the connection was lost, which leaves the outcome unknown. A step
// begins with a look, and so finds out. What each returns is the call's error.
func (b *Backend) each(ctx context.Context, doing, id string, step func(*session) error) error {
	for lost, late := 0, 0; ; {
		s, err := b.session(ctx)
		if err == nil {
			err = step(s)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, election.ErrClosed):
			return fault.Closed(doing, id)
		case errors.Is(err, errAgain):
			if late++; late < triesBusy && fault.Ended(ctx) == nil {
				continue
			}
		case errors.Is(err, errCorrupt):
			return fault.Corrupt(doing, id, err.Error())
		case errors.Is(err, election.ErrNumbersExhausted):
			return fmt.Errorf("%s %q: %w", doing, id, err)
		case isLoss(err) && s != nil && fault.Ended(ctx) == nil:
			if lost++; lost < triesLost {
				continue
			}
		case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL):
			err = fmt.Errorf("%w: the user may not do this below %s", err, b.base)
		}
		return fault.Unavailable(ctx, doing, id, err)
	}
}

// isLoss reports whether err means that a request may or may not have been carried
// out. Everything is one but what only a server says.
func isLoss(err error) bool {
	for _, answer := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed,
		zk.ErrNoChildrenForEphemerals, zk.ErrAPIError, zk.ErrBadArguments, errUnreachable,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, answer) {
			return false
		}
	}
	return true
}

// look reads the record of an election. It is one round trip: the wire puts a sync
// before the read.
func (b *Backend) look(ctx context.Context, s *session, id string) (view, error) {
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := do(ctx, s, func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(b.path(id))
		return node{data, stat}, err
	})
	now := time.Now()
	switch {
	case errors.Is(err, zk.ErrNoNode):
		b.sights.forget(id)
		return view{}, nil
	case err != nil:
		return view{}, err
	}
	r, err := decode(n.data)
	if err != nil {
		return view{}, err
	}
	v := view{record: r, exists: true, version: n.stat.Version, lease: n.stat.NumChildren > 0}
	if r.State == stateHeld {
		v.left = b.sights.see(id, r, now)
	} else {
		b.sights.forget(id)
	}
	return v, nil
}

// now is the time by the servers' clock: that of the leader at a write of ours. Only
// the fencing number's clock term is made of it.
func (b *Backend) now(ctx context.Context, s *session) (time.Time, error) {
	for {
		stat, err := do(ctx, s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(b.base, nil, -1) })
		switch {
		case err == nil:
			return time.UnixMilli(stat.Mtime), nil
		case !errors.Is(err, zk.ErrNoNode):
			return time.Time{}, err
		}
		if err := b.createBase(ctx, s); err != nil {
			return time.Time{}, err
		}
	}
}

// createBase creates our node and the chroot above it, as far as they are missing.
func (b *Backend) createBase(ctx context.Context, s *session) error {
	for end := 1; end <= len(b.base); end++ {
		if end < len(b.base) && b.base[end] != '/' {
			continue
		}
		_, err := do(ctx, s, func(c *zk.Conn) (string, error) {
			path := b.base[:end]
			if there, _, err := c.Exists(path); there || err != nil {
				return "", err // in a chroot of somebody else's, asking may be all that is allowed
			}
			return c.Create(path, nil, zk.FlagPersistent, b.o.ACL)
		})
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// write replaces the record of the election that was found as v, in one transaction
// with its lease's node: there afterwards in this session if held, else gone. It is
// refused, as errAgain, if anything of that has changed since.
func (b *Backend) write(ctx context.Context, s *session, id string, v view, r record) error {
	path := b.path(id)
	lease := path + "/lease"
	var ops []any
	// The ephemeral node goes before the record changes and comes after it: whatever
	// is seen of it in between is a vacant election.
	keep := v.lease && r.State == stateHeld && v.State == stateHeld && v.Session == r.Session && v.Number == r.Number
	switch {
	case keep:
		ops = append(ops, &zk.CheckVersionRequest{Path: lease, Version: -1})
	case v.lease:
		ops = append(ops, &zk.DeleteRequest{Path: lease, Version: -1})
	}
	if v.exists {
		ops = append(ops, &zk.SetDataRequest{Path: path, Data: r.encode(), Version: v.version})
	} else {
		ops = append(ops, &zk.CreateRequest{Path: path, Data: r.encode(), Acl: b.o.ACL, Flags: zk.FlagPersistent})
	}
	if r.State == stateHeld && !keep {
		ops = append(ops, &zk.CreateRequest{Path: lease, Data: []byte(r.Owner), Acl: b.o.ACL, Flags: zk.FlagEphemeral})
	}
	asked := time.Now()
	_, err := do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
	switch {
	case err == nil:
		if r.State == stateHeld {
			b.sights.wrote(id, r, asked)
		}
		return nil
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		return errAgain
	}
	return err
}

// path is that of the election's node.
func (b *Backend) path(id string) string {
	return b.base + "/" + strings.ReplaceAll(id, "/", "%2F") // ids have no percent signs
}
