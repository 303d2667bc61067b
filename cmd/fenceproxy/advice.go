package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// A finding is what a server's error means to whoever has to mend it.
type finding int

const (
	unknown      finding = iota // the server was not reached, or it is something else
	badLogin                    // the user or the password was refused
	noRole                      // Postgres does not let that role in: it may not exist
	noRights                    // logged in, but not allowed
	notInstalled                // a schema or a table is missing
	noDatabase                  // the database does not exist
)

// find says what an error means, by the server's code and never by its text.
func find(err error) finding {
	var pg interface{ SQLState() string }
	switch {
	case errors.Is(err, postgres.ErrNotInstalled):
		return notInstalled
	case errors.As(err, &pg):
		switch pg.SQLState() {
		case "28P01":
			return badLogin
		case "28000":
			return noRole
		case "42501":
			return noRights
		case "3F000", "42P01":
			return notInstalled
		case "3D000":
			return noDatabase
		}
	case redis.HasErrorPrefix(err, "NOPERM"):
		return noRights
	// A server without a password answers ERR to one; go-redis knows that one too.
	case redis.IsAuthError(err), redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return badLogin
	}
	return unknown
}

// electionFix says what to do about an error of an election backend; it is empty
// where there is nothing to say.
func electionFix(backend config.Secret, err error) string {
	flags, role := "--elections", userOf(backend, "")
	if role != "" && role != "fenceproxy" && role != "postgres" {
		flags += " --grant " + role
	}
	switch find(err) {
	case badLogin:
		return "The server refused the user or the password: correct them in the URL."
	case noRole:
		if role == "fenceproxy" {
			return "The server does not let this role in. If it does not exist, run: " + installCommand(backend, flags)
		}
		return "The server does not let this role in. If it does not exist, create it (CREATE ROLE … LOGIN), and then run: " + installCommand(backend, flags)
	case noRights:
		if isPostgres(backend) {
			return "The role lacks rights on the table of elections. Run: " + installCommand(backend, "--elections --grant "+userOf(backend, "ROLE"))
		}
		return "The server does not let this user do that: docs/elections/redis.md lists the rights that it needs."
	case notInstalled:
		return "The table of elections is missing. Run: " + installCommand(backend, flags)
	case noDatabase:
		return "Create the database, or correct the URL."
	case unknown:
	}
	return ""
}

// controlInstall is the advice to install the fence of a listener.
func controlInstall(l *config.Listener) string {
	return "Run: " + installCommand(l.Control, controlFlags(l, ""))
}

// controlFlags adds to flags of install the role of a listener's control connection.
func controlFlags(l *config.Listener, flags string) string {
	if user := userOf(l.Control, ""); user != "" && user != "fenceproxy" && user != "postgres" {
		flags = strings.TrimSpace(flags + " --role " + user)
	}
	return flags
}

// controlFix is electionFix for the control connection of a listener.
func controlFix(l *config.Listener, err error) string {
	switch find(err) {
	case badLogin:
		return fmt.Sprintf("The server refused the user or the password: correct control of the listener at %v.", l.Pos)
	case noRole:
		return "The server does not let this role in. If it does not exist: " + controlInstall(l)
	case notInstalled:
		return controlInstall(l)
	case noRights:
		if l.Protocol == config.Postgres {
			return "The role lacks rights. " + controlInstall(l)
		}
	case noDatabase:
		return fmt.Sprintf("Create the database, or correct control of the listener at %v.", l.Pos)
	case unknown:
		if l.Protocol == config.Postgres {
			break
		}
		if fix := certificateFix(l, "control", err); fix != "" {
			return fix
		}
		if cut(err) && !strings.HasPrefix(l.Control.Reveal(), "unix") {
			return fmt.Sprintf("If this is the server's tls-port, begin control of the listener at %v with rediss, and set upstream_tls.", l.Pos)
		}
	}
	return fmt.Sprintf("Start the server, or correct control of the listener at %v.", l.Pos)
}

// installCommand is the whole command that installs in the database of a URL.
func installCommand(at config.Secret, flags string) string {
	c := "fenceproxy install "
	if flags != "" {
		c += flags + " "
	}
	u, err := url.Parse(at.Reveal())
	if err != nil || u.Host == "" && u.RawQuery == "" {
		return c + "--dsn postgres://SUPERUSER@HOST/DATABASE"
	}
	// Only what is known to be no secret is taken over.
	admin := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: u.Host, Path: u.Path}
	q := url.Values{}
	for _, k := range []string{"host", "port", "sslmode"} {
		if v := u.Query().Get(k); v != "" {
			q.Set(k, v)
		}
	}
	admin.RawQuery = q.Encode()
	return c + "--dsn '" + admin.String() + "'"
}

func isPostgres(s config.Secret) bool {
	return strings.HasPrefix(strings.ToLower(s.Reveal()), "postgres")
}

// userOf is the user name of a URL, where it can stand in a command line.
func userOf(s config.Secret, otherwise string) string {
	first, _, _ := strings.Cut(s.Reveal(), ",") // of several servers
	u, err := url.Parse(first)
	if err != nil || u.User.Username() == "" {
		return otherwise
	}
	for _, r := range u.User.Username() {
		if r != '_' && r != '-' && r != '.' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return otherwise
		}
	}
	return u.User.Username()
}

// serverSaid reports whether a server answered and refused: the outcome is known, and
// asking again changes nothing.
func serverSaid(err error) bool { return find(err) != unknown }

// inUse reports whether an address cannot be listened on because somebody does.
func inUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// advised is an error with what to do about it on a line of its own.
func advised(err error, fix string) error {
	if err == nil || fix == "" {
		return err
	}
	return fmt.Errorf("%w\n%s", err, fix)
}

// oneLine makes one line of a text: a driver's error may have several.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
