package testenv

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// ReadCase splits a recorded case into its lines and its answers. An answer follows a line of
// four dashes and the keys that it is for.
func ReadCase(text string, line func(string) error) (head []string, answers map[string]string, err error) {
	answers = make(map[string]string)
	text, rest, _ := strings.Cut(text, "\n----")
	for _, l := range strings.Split(text, "\n") {
		head = append(head, l)
		if err := line(strings.TrimSpace(l)); err != nil {
			return nil, nil, fmt.Errorf("%q: %w", l, err)
		}
	}
	if rest == "" {
		return head, answers, nil
	}
	for _, part := range strings.Split(rest, "\n----") {
		keys, body, _ := strings.Cut(part, "\n")
		for _, key := range strings.Fields(keys) {
			answers[key] = strings.TrimSuffix(body, "\n") + "\n"
		}
	}
	return head, answers, nil
}

// CaseWords splits a line of a case into words, quoted or plain, each expanded.
func CaseWords(line string) ([]string, error) {
	var f []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] == '"' {
			q, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, err
			}
			text, err := strconv.Unquote(q)
			if err != nil {
				return nil, err
			}
			f = append(f, ExpandCase(text))
			line = line[len(q):]
			continue
		}
		end := 0
		for end < len(line) && line[end] != ' ' {
			if i := strings.Index(line[end:], "}}"); strings.HasPrefix(line[end:], "{{") && i > 0 {
				end += i
			}
			end++
		}
		f = append(f, ExpandCase(line[:end]))
		line = line[end:]
	}
	return f, nil
}

// ExpandCase writes {{x*1000}} and {{sha text}} out.
func ExpandCase(s string) string {
	before, rest, ok := strings.Cut(s, "{{")
	if !ok {
		return s
	}
	what, after, _ := strings.Cut(rest, "}}")
	if text, ok := strings.CutPrefix(what, "sha "); ok {
		sum := sha1.Sum([]byte(text))
		return before + hex.EncodeToString(sum[:]) + ExpandCase(after)
	}
	if i := strings.LastIndex(what, "*"); i > 0 {
		if n, err := strconv.Atoi(what[i+1:]); err == nil {
			return before + strings.Repeat(what[:i], n) + ExpandCase(after)
		}
	}
	return before + "{{" + what + "}}" + ExpandCase(after)
}
