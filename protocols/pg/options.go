package pg

import "strings"

// splitOptions splits the startup parameter options into words as the server does: at
// white space, where a backslash takes the next byte as it is.
func splitOptions(s string) []string {
	var words []string
	for i := 0; i < len(s); {
		for i < len(s) && isSpace(s[i]) {
			i++
		}
		if i == len(s) {
			break
		}
		var w strings.Builder
		for ; i < len(s) && !isSpace(s[i]); i++ {
			if s[i] == '\\' {
				if i++; i == len(s) {
					break
				}
			}
			w.WriteByte(s[i])
		}
		words = append(words, w.String())
	}
	return words
}

// joinOptions is the inverse of splitOptions.
func joinOptions(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		for j := 0; j < len(w); j++ {
			if isSpace(w[j]) || w[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(w[j])
		}
	}
	return b.String()
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// The server's command-line switches for a session; a colon follows those that take
// an argument.
const switches = "B:bc:C:D:d:EeFf:h:ijk:lN:nOPp:r:S:sTt:v:W:-:"

// takeOptions removes the settings for which take returns true from the words of
// options: "-c name=value" and "--name=value", alone or in a cluster of switches, as
// getopt reads them. It reports false when it cannot tell what the words mean.
func takeOptions(words []string, take func(name, value string) bool) ([]string, bool) {
	var kept []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if len(w) < 2 || w[0] != '-' || w == "--" {
			return nil, false // the server takes no other arguments
		}
		for j := 1; j < len(w); j++ {
			at := strings.IndexByte(switches, w[j])
			if at < 0 || w[j] == ':' {
				return nil, false
			}
			if at+1 >= len(switches) || switches[at+1] != ':' {
				kept = append(kept, "-"+w[j:j+1])
				continue
			}
			arg := w[j+1:]
			if arg == "" {
				if i++; i == len(words) {
					return nil, false
				}
				arg = words[i]
			}
			if w[j] != 'c' && w[j] != '-' {
				kept = append(kept, "-"+w[j:j+1]+arg)
				break
			}
			name, value, has := strings.Cut(arg, "=")
			if !has {
				return nil, false
			}
			if name = settingName(name); !take(name, value) {
				kept = append(kept, "-c", name+"="+value)
			}
			break
		}
	}
	return kept, true
}

// settingName is a setting's name as the server looks it up from a switch.
func settingName(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }
