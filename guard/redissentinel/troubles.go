package redissentinel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Troubles says of each sentinel that does not know the primary why, for people to read.
func (p *Primary) Troubles(ctx context.Context) []error {
	errs := p.each(ctx, func(ctx context.Context, i int) error {
		list, err := p.sentinels[i].Masters(ctx).Result()
		var reply redis.Error
		var errno syscall.Errno
		addr := p.o.Sentinels[i]
		switch {
		case errors.As(err, &reply) && (redis.HasErrorPrefix(err, "NOPERM") || redis.IsAuthError(err)):
		case errors.As(err, &reply):
			return fmt.Errorf("%s is no sentinel", addr)
		case errors.As(err, &errno): // without the address, once more
			return fmt.Errorf("%s: %w", addr, errno)
		case err == nil:
			names := namesIn(list)
			if slices.Contains(names, p.o.Master) {
				return nil
			}
			if len(names) == 0 {
				names = []string{"none"}
			}
			return fmt.Errorf("%s watches no primary named %q (it watches: %s)", addr, p.o.Master, strings.Join(names, ", "))
		}
		return fmt.Errorf("%s: %w", addr, err)
	})
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// namesIn returns the names in an answer to SENTINEL MASTERS.
func namesIn(list []any) (names []string) {
	for _, m := range list {
		switch m := m.(type) {
		case []any:
			for i := 0; i+1 < len(m); i += 2 {
				if m[i] == "name" {
					names = append(names, fmt.Sprint(m[i+1]))
				}
			}
		case map[any]any:
			names = append(names, fmt.Sprint(m["name"]))
		}
	}
	slices.Sort(names)
	return names
}
