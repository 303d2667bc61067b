package policy

import "strings"

// ParseSearchPath splits the setting search_path into schemas, as the server does. $user is
// left as it is. It reports false for what is no list of names.
func ParseSearchPath(setting string) ([]string, bool) { return splitNames(setting, ',') }

// splitNames splits a list of identifiers, quoted or not, with sep between.
func splitNames(s string, sep byte) ([]string, bool) {
	var names []string
	s = strings.TrimLeft(s, spaces)
	if s == "" {
		return nil, true
	}
	for {
		var name string
		if s != "" && s[0] == '"' {
			var b strings.Builder
			closed := false
			i := 1
			for ; i < len(s); i++ {
				if s[i] == '"' {
					if i+1 == len(s) || s[i+1] != '"' {
						closed = true
						i++
						break
					}
					i++
				}
				b.WriteByte(s[i])
			}
			if !closed {
				return nil, false
			}
			name, s = b.String(), s[i:]
		} else {
			i := 0
			for i < len(s) && s[i] != sep && strings.IndexByte(spaces, s[i]) < 0 {
				i++
			}
			if i == 0 {
				return nil, false
			}
			name, s = lowerASCII(s[:i]), s[i:]
		}
		names = append(names, cutName(name))
		s = strings.TrimLeft(s, spaces)
		if s == "" {
			return names, true
		}
		if s[0] != sep {
			return nil, false
		}
		s = strings.TrimLeft(s[1:], spaces)
	}
}

const spaces = " \t\n\r\f\v"

func lowerASCII(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] = lower(b[i])
	}
	return string(b)
}

// maxName is where the server cuts a name off.
const maxName = 63

func cutName(s string) string { return s[:min(len(s), maxName)] }

// isTemp reports whether a schema holds what is a session's own.
func isTemp(schema string) bool { return schema == "pg_temp" || strings.HasPrefix(schema, "pg_temp_") }
