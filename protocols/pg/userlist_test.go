package pg

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUserlist(t *testing.T) {
	_, one := secret(t, "one", testSalt)
	_, two := secret(t, "two", testSalt)
	path := filepath.Join(t.TempDir(), "userlist.txt")
	write := func(text string, mode os.FileMode) *Userlist {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return NewUserlist(path)
	}
	good := `"app" "` + one + `"
; a comment
# another

  "we""ird é"	"` + two + "\"  \r\n" + `"app" "` + two + `"`
	u := write(good, 0o640)
	if n, err := u.Check(); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for role, want := range map[string]string{"app": one, `we"ird é`: two, "nobody": "", "": ""} {
		if got, err := u.Verifier(t.Context(), role); got != want || err != nil {
			t.Errorf("%q: %q, %v", role, got, err)
		}
	}
	// Read anew each time.
	write(`"app" "`+two+`"`, 0o600)
	if got, err := u.Verifier(t.Context(), "app"); got != two || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for text, line := range map[string]string{
		`"app" "md5d41d8cd98f00b204e9800998ecf8427e"`: "1",
		"\n\"app\" \"hunter2\"":                       "2",
		`app ` + one:                                  "1",
		`"app" "` + one:                               "1",
		`"app" "` + one + `" x`:                       "1",
		`"app"`:                                       "1",
		`"" "` + one + `"`:                            "1",
		`"app`:                                        "1",
		`"` + strings.Repeat("x", 1<<17):              "",
	} {
		_, err := write(text, 0o600).Verifier(t.Context(), "other")
		if err == nil || line != "" && !strings.Contains(err.Error(), ":"+line+": ") || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "d41d8") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, mode := range []os.FileMode{0o644, 0o602, 0o601, 0o666} {
		if _, err := write(good, mode).Verifier(t.Context(), "app"); err == nil || !strings.Contains(err.Error(), "chmod") {
			t.Errorf("%o: %v", mode, err)
		}
	}
	if _, err := NewUserlist(t.TempDir()).Check(); err == nil {
		t.Error("a folder")
	}
	if _, err := NewUserlist(path + ".none").Check(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
