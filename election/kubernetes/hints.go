package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// A watch lasts for watchFor, by the server; one that the server does not end is given up
// watchOver later, since a connection that fell silent tells nothing.
const (
	watchFor  = 5 * time.Minute
	watchOver = 30 * time.Second
	// minWatch is how long a watch lasts that did not fail at once.
	minWatch = 10 * time.Second
)

// Hints implements election.Hinter, by watches of the Lease, one after the other. It needs
// the verb watch.
func (b *Backend) Hints(ctx context.Context, id string, hint func()) error {
	if err := election.CheckID(id); err != nil {
		return err
	}
	ctx, c, err := b.begin(ctx, "listening for releases of", id)
	if err != nil {
		return err
	}
	defer c.end()
	for {
		if err := c.watch(ctx, hint); err != nil {
			return err
		}
	}
}

// watch calls hint when it begins, and whenever nobody holds the Lease, until the server
// ends it. The watch names no resourceVersion: it may begin from a cache with what was true a
// while ago, and goes on to what is. Nothing is taken from it but a hint.
func (c *call) watch(ctx context.Context, hint func()) error {
	of, cancel := context.WithTimeout(ctx, watchFor+watchOver)
	defer cancel()
	w, err := c.client.Get().MaxRetries(0).Namespace(c.namespace).Resource(resource).
		Param("watch", "true").
		Param("fieldSelector", "metadata.name="+c.lease).
		Param("timeoutSeconds", strconv.Itoa(int(watchFor/time.Second))).
		Watch(of)
	if err != nil {
		return c.unwatched(ctx, err)
	}
	defer func() {
		w.Stop()
		for range w.ResultChan() {
			// Only its end matters.
		}
	}()
	began := time.Now()
	hint()
	for {
		select {
		case <-of.Done():
			return c.unwatched(ctx, of.Err())
		case e, ok := <-w.ResultChan():
			switch {
			case !ok && time.Since(began) < minWatch:
				return c.unwatched(ctx, errors.New("the watch ended early"))
			case !ok:
				return nil
			}
			switch l, isLease := e.Object.(*coordinationv1.Lease); {
			case e.Type == apiwatch.Error:
				return c.unwatched(ctx, apierrors.FromObject(e.Object))
			case isLease && (e.Type == apiwatch.Deleted || released(l)):
				hint()
			}
		}
	}
}

// released reports whether nobody holds the Lease, by what it says.
func released(l *coordinationv1.Lease) bool {
	_, held := l.Annotations[digestNote]
	return !held
}

// unwatched is the error of a watch.
func (c *call) unwatched(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), election.ErrClosed) {
		return fault.Closed(c.doing, c.id)
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w (this needs watch of leases.coordination.k8s.io in namespace %q)", err, c.namespace)
	}
	return fault.Unavailable(ctx, c.doing, c.id, err)
}
