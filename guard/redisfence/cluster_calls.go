package redisfence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// again says what to do when an answer got lost on the way.
type again bool

const (
	once  again = false // the command may have been executed: the caller must know
	retry again = true  // it does no harm twice
)

// errNoOwner means that no node says that a slot is its own.
var errNoOwner = errors.New("no node owns the slot")

// do runs a command of one key at the node that has it, follows the key where it moves,
// and waits a while for a slot that nobody serves.
func (f *ClusterFence) do(ctx context.Context, key string, a again, args ...any) *redis.Cmd {
	slot := rediscluster.Slot([]byte(key))
	start, hops := time.Now(), 0
	addr, asking := "", false
	var busySince time.Time
	for {
		var cmd *redis.Cmd
		if addr == "" {
			n, err := f.owner(ctx, slot)
			if err != nil {
				cmd = redis.NewCmd(ctx)
				cmd.SetErr(err)
			}
			addr = n.Addr
		}
		if cmd == nil {
			cmd = f.send(ctx, addr, asking, args)
		}
		err := cmd.Err()
		if err == nil || errors.Is(err, redis.Nil) {
			return cmd
		}
		moved, isMoved := redis.IsMovedError(err)
		ask, isAsk := redis.IsAskError(err)
		var said redis.Error
		wait := true
		switch {
		case isMoved || isAsk:
			if isMoved {
				f.top.Suspect()
				ask = moved
			}
			addr, asking = follow(addr, ask), isAsk
			hops++
			wait = hops%8 == 0
		case redis.HasErrorPrefix(err, "BUSY"):
			if busySince.IsZero() {
				busySince = time.Now()
			} else if time.Since(busySince) > busyPatience {
				endScript(ctx, f.top.Client(addr))
				busySince = time.Now()
			}
			start = time.Now() // it is there: it will come to an end, or ctx
		case redis.HasErrorPrefix(err, "TRYAGAIN"), redis.HasErrorPrefix(err, "CLUSTERDOWN"), redis.HasErrorPrefix(err, "LOADING"),
			redis.HasErrorPrefix(err, "MASTERDOWN"), redis.HasErrorPrefix(err, "READONLY"), errors.Is(err, errNoOwner):
			f.top.Suspect()
			addr, asking = "", false
		case errors.As(err, &said), a == once:
			f.top.Suspect()
			return cmd
		default:
			f.top.Suspect()
			addr, asking = "", false
		}
		if wait && pause(ctx) != nil || ctx.Err() != nil {
			cmd.SetErr(fmt.Errorf("%w: %w", context.Cause(ctx), err))
			return cmd
		}
		if time.Since(start) > nodeTimeout {
			return cmd
		}
	}
}

// owner is the node that owns a slot.
func (f *ClusterFence) owner(ctx context.Context, slot int) (rediscluster.Node, error) {
	if f.top.View() == nil {
		if err := f.top.Refresh(ctx); err != nil {
			return rediscluster.Node{}, err
		}
	}
	n, ok := f.top.View().Owner(slot)
	if !ok || n.Addr == "" {
		return rediscluster.Node{}, fmt.Errorf("%w %d", errNoOwner, slot)
	}
	return n, nil
}

// send sends one command to one node.
func (f *ClusterFence) send(ctx context.Context, addr string, asking bool, args []any) *redis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	if !asking {
		return f.top.Client(addr).Do(ctx, args...)
	}
	p := f.top.Client(addr).Pipeline()
	p.Do(ctx, "ASKING")
	cmd := p.Do(ctx, args...)
	_, _ = p.Exec(ctx) // the command has its own error
	return cmd
}

// follow is the address that a redirection names. Without a host it is the one that was
// asked.
func follow(asked, to string) string {
	host, port, err := net.SplitHostPort(to)
	if err != nil || host != "" {
		return to
	}
	host, _, _ = net.SplitHostPort(asked)
	return net.JoinHostPort(host, port)
}
