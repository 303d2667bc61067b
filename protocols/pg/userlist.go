package pg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fenceproxy/fenceproxy/protocols/pg/internal/scram"
)

// A Userlist is a file of SCRAM verifiers, one a line:
//
//	"role" "SCRAM-SHA-256$4096:…$…:…"
//
// A double quote in a name is written twice; lines that begin with ; or # are comments. The
// file is read anew for each login, and nothing of it is kept. It must not be readable by
// everybody. Passwords, in clear or as MD5, are a mistake.
type Userlist struct{ path string }

// maxUserlist bounds the size of the file.
const maxUserlist = 16 << 20

// NewUserlist names the file.
func NewUserlist(path string) *Userlist { return &Userlist{path} }

// Check reads the whole file and says how many roles it has.
func (u *Userlist) Check() (roles int, err error) {
	err = u.read(func(string, string) { roles++ })
	return roles, err
}

// Verifier returns the verifier of the first line that has the role.
func (u *Userlist) Verifier(_ context.Context, role string) (string, error) {
	var found string
	// All of it is read, whichever line it is: how long it takes says nothing.
	err := u.read(func(name, verifier string) {
		if found == "" && name == role {
			found = verifier
		}
	})
	return found, err
}

func (u *Userlist) read(line func(role, verifier string)) error {
	f, err := os.Open(u.path)
	if err != nil {
		return fmt.Errorf("userlist: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("userlist: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("userlist %s: not a file", u.path)
	case info.Mode().Perm()&0o007 != 0:
		return fmt.Errorf("userlist %s: everybody may read or change it (mode %04o); take that away (chmod o-rwx)", u.path, info.Mode().Perm())
	}
	s := bufio.NewScanner(io.LimitReader(f, maxUserlist))
	for n := 1; s.Scan(); n++ {
		text := strings.TrimSpace(s.Text())
		if text == "" || text[0] == ';' || text[0] == '#' {
			continue
		}
		role, verifier, err := userlistLine(text)
		if err != nil {
			return fmt.Errorf("userlist %s:%d: %w", u.path, n, err)
		}
		line(role, verifier)
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("userlist %s: %w", u.path, err)
	}
	return nil
}

// userlistLine reads a line. Its error holds nothing of it.
func userlistLine(s string) (role, verifier string, err error) {
	role, rest, ok := quotedWord(s)
	verifier, rest, ok2 := quotedWord(strings.TrimLeft(rest, " \t"))
	if !ok || !ok2 || role == "" || rest != "" {
		return "", "", errors.New(`not of the form "role" "SCRAM-SHA-256$…"`)
	}
	if _, err := scram.ParseVerifier(verifier); err != nil {
		return "", "", err
	}
	return role, verifier, nil
}

// quotedWord takes a word in double quotes.
func quotedWord(s string) (word, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, `"`)
	var b strings.Builder
	for ok {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return "", "", false
		}
		b.WriteString(s[:i])
		if s = s[i+1:]; !strings.HasPrefix(s, `"`) {
			return b.String(), s, true
		}
		b.WriteByte('"')
		s = s[1:]
	}
	return "", "", false
}
