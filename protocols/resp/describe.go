package resp

import (
	"context"
	"strings"

	"github.com/fenceproxy/fenceproxy/policy"
)

// Describe asks the server what the command in argv is, subcommand and all. It is nil for
// what the server does not know.
func Describe(ctx context.Context, control Control, argv [][]byte) (*policy.RedisCommand, error) {
	if len(argv) == 0 || !validWord(argv[0]) {
		return nil, nil
	}
	found, err := describe(ctx, control, strings.ToLower(string(argv[0])))
	if err != nil || found[0] == nil {
		return nil, err
	}
	cmd := found[0]
	if cmd.Container && len(argv) > 1 {
		if !validWord(argv[1]) {
			return nil, nil
		}
		cmd = cmd.sub([]byte(strings.ToLower(string(argv[1]))))
	}
	return cmd.RedisCommand, nil
}
