package tlsconf

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// DefaultEvery is how often Watch reads the files when every is zero.
const DefaultEvery = 10 * time.Second

// A Reloader is a Server or a Client.
type Reloader interface {
	fmt.Stringer
	Reload() (changed bool, err error)
	Leaf() *x509.Certificate
}

// Watch reloads all of them every so often, and whenever now says so, until ctx is done.
// It logs what changed and, once for each different error, what could not be used.
func Watch(ctx context.Context, every time.Duration, now <-chan os.Signal, log *slog.Logger, all ...Reloader) {
	if every == 0 {
		every = DefaultEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := make([]string, len(all))
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			asked = true
		case <-tick.C:
		}
		for i, r := range all {
			changed, err := r.Reload()
			switch {
			case err != nil && (asked || err.Error() != said[i]):
				said[i] = err.Error()
				log.Error("certificate files changed and cannot be used: the old ones stay in use", "file", r.String(), "err", err)
			case err != nil:
			case changed:
				said[i] = ""
				a := []any{"file", r.String()}
				if leaf := r.Leaf(); leaf != nil {
					a = append(a, "until", leaf.NotAfter)
				}
				log.Info("certificate files read again", a...)
			default:
				said[i] = ""
			}
		}
	}
}
