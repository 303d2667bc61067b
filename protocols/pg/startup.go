package pg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policy"
)

// Codes in the place of a startup packet's protocol version.
const (
	codeCancel = 1234<<16 | 5678
	codeSSL    = 1234<<16 | 5679
	codeGSS    = 1234<<16 | 5680
)

// A startup is what the proxy must know of a client's StartupMessage.
type startup struct {
	user     string
	election string
	token    string // as the client wrote it
	readOnly bool   // the client asks to be read-only itself
	// The client asks for a replication connection.
	replication bool
	packet      []byte // to be sent upstream: without the credential, read-only
}

// A startupError is a mistake in a StartupMessage, with its SQLSTATE.
type startupError struct {
	code    string
	message string
}

func (e *startupError) Error() string { return e.message }

func (e *startupError) hint() string {
	switch e.code {
	case "08006":
		return "Try again; the proxy's log says why it cannot connect."
	case "08P01":
		return "The client does not speak the protocol of PostgreSQL, or speaks it wrongly."
	case "0A000":
		return "Use a newer client."
	case "28000":
		return "The listener's configuration says how clients of it must connect."
	case "22023":
		return "Write options=-c name=value, with a backslash before each space within a value."
	case "42704":
		return "The credential is given as fence.election and fence.token."
	}
	return ""
}

// A serversError is a mistake in a StartupMessage that the server answers in its own words:
// it gets a packet with the same mistake and nothing of the client's else.
type serversError struct{ packet []byte }

func (e *serversError) Error() string {
	return fmt.Sprintf("not a startup packet that is understood: %x", e.packet)
}

var errStartupLayout = errors.New("invalid startup packet layout: expected terminator as last byte")

// readParams splits the parameters of a StartupMessage, in order.
func readParams(b []byte) ([][2]string, error) {
	var params [][2]string
	for {
		name, rest, ok := cut(b)
		if !ok {
			return nil, errStartupLayout
		}
		if len(name) == 0 {
			if len(rest) != 0 {
				return nil, errStartupLayout
			}
			return params, nil
		}
		value, rest, ok := cut(rest)
		if !ok {
			return nil, errStartupLayout
		}
		params = append(params, [2]string{string(name), string(value)})
		b = rest
	}
}

// readStartup takes the credential out of a StartupMessage (the whole packet) and makes
// the session start read-only.
//
// What keeps writes out before the bind: the session starts with
// default_transaction_read_only=on. A parameter of that name would beat options, so it
// is taken out whatever its case; ours is the last switch, which beats earlier ones.
func readStartup(packet []byte) (*startup, error) {
	version := binary.BigEndian.Uint32(packet[4:])
	switch {
	case version == codeSSL || version == codeGSS:
		// Again: to a server that is asked for the first time this says something else.
		return nil, &startupError{"0A000", fmt.Sprintf("unsupported frontend protocol %d.%d: the proxy speaks 3.0 and later", version>>16, version&0xffff)}
	case version>>16 != 3:
		// With nothing behind it: should a server know the version, it learns no user.
		return nil, &serversError{append(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 9}, version), 0)}
	}
	params, err := readParams(packet[8:])
	if err != nil {
		return nil, &serversError{[]byte{0, 0, 0, 8, 0, 3, 0, 0}}
	}
	s := &startup{}
	var unknown error
	take := func(name, value string) bool {
		switch {
		case name == "fence.election":
			s.election = value
		case name == "fence.token":
			s.token = value
		case strings.HasPrefix(name, "fence."):
			unknown = &startupError{"42704", fmt.Sprintf("unrecognized configuration parameter %q: there are fence.election and fence.token", name)}
		case name == "default_transaction_read_only":
			s.readOnly = !isOff(value)
		case name == "transaction_read_only":
		case policy.SettingActs(name):
			// SET refuses it too, and RESET ALL would bring it back.
			unknown = &startupError{"42501", fmt.Sprintf("setting %q is not allowed through this proxy: with it, reading writes or runs something", name)}
		default:
			return false
		}
		return true
	}
	var words []string
	var kept [][2]string
	for _, p := range params {
		switch {
		case p[0] == "options":
			// The server takes the last one.
			if words, err = clientOptions(p[1], take); err != nil {
				return nil, err
			}
		case p[0] == "replication":
			// What surely means no the server may well refuse; all else counts as yes.
			s.replication = s.replication || !isOff(p[1])
			kept = append(kept, p)
		case p[0] == "user":
			s.user = p[1]
			kept = append(kept, p)
		case strings.HasPrefix(p[0], "_pq_."):
			kept = append(kept, p)
		case !take(strings.ToLower(p[0]), p[1]):
			kept = append(kept, p)
		}
	}
	if unknown != nil {
		return nil, unknown
	}
	words = append(slices.Clip(words),
		"-c", "fence.election=", "-c", "fence.number=", "-c", "fence.token="+placeholder, "-c", "fence.status=reader",
		"-c", "default_transaction_read_only=on")
	kept = append(kept, [2]string{"options", joinOptions(words)})

	b := binary.BigEndian.AppendUint32(make([]byte, 4, len(packet)+256), version)
	for _, p := range kept {
		b = append(append(b, p[0]...), 0)
		b = append(append(b, p[1]...), 0)
	}
	b = append(b, 0)
	if len(b) > maxStartup {
		return nil, &startupError{"08P01", fmt.Sprintf("the startup packet is too long: at most %d bytes are left beside what the proxy adds", maxStartup-len(b)+len(packet))}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	s.packet = b
	return s, nil
}

func clientOptions(s string, take func(name, value string) bool) ([]string, error) {
	words, ok := takeOptions(splitOptions(s), take)
	if !ok {
		return nil, &startupError{"22023", "invalid startup parameter options: the proxy takes command-line switches such as -c name=value and --name=value"}
	}
	return words, nil
}

// isOff reports whether a value surely means no; what it does not know is yes.
func isOff(v string) bool {
	switch strings.ToLower(v) {
	case "off", "of", "false", "no", "0", "f", "n":
		return true
	}
	return false
}

// placeholder stands wherever a token must not.
const placeholder = "[token]"
