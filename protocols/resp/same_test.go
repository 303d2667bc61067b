package resp_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// talk sends bytes and returns all that comes back until the other side closes, or until
// the answer to a last marker has come. piece is how many bytes go at once; zero is all.
func talk(t *testing.T, addr string, first []string, stream string, piece int) string {
	t.Helper()
	w := dial(t, addr)
	defer w.Close()
	for _, line := range first {
		if got := w.ask(line); strings.HasPrefix(got, "-") {
			t.Fatalf("%s: %s", line, got)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if piece == 0 {
			piece = len(stream)
		}
		for rest := stream; len(rest) > 0; {
			n := min(piece, len(rest))
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
	}()
	var got strings.Builder
	buf := make([]byte, 32<<10)
	for {
		// Quiet for this long means that no more will come: the marker, if the stream
		// ends in one, makes it come at once.
		wait := 2 * time.Second
		if strings.Contains(got.String(), "the-end") {
			wait = 20 * time.Millisecond
		}
		_ = w.SetReadDeadline(time.Now().Add(wait))
		n, err := w.r.Read(buf)
		got.Write(buf[:n])
		var ne net.Error
		switch {
		case errors.Is(err, io.EOF):
			<-done
			return got.String() + "<closed>"
		case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
			_ = w.Close()
			<-done
			return got.String()
		case err != nil:
			_ = w.Close()
			<-done
			return got.String() + "<closed>"
		}
	}
}

const theEnd = "*2\r\n$4\r\nECHO\r\n$7\r\nthe-end\r\n"

func bulks(args ...string) string {
	s := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		s += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	return s
}

// streams are what a bound session must be answered exactly as by the server itself.
// KEY is a key of the test's own.
func streams() map[string]string {
	long := strings.Repeat("x", 100_000)
	m := map[string]string{
		"R1 too many arguments":  "*3000000000\r\n",
		"R1 huge count":          "*2000000000\r\n",
		"R1 huge count, command": "*2000000000\r\n$4\r\nPING\r\n",
		"R3 empty lines":         "\r\n\r\n\nPING\r\n" + theEnd,
		"R3 inline quotes":       "SET KEY \"a\\x41\\n b\" \r\nget KEY\r\nset KEY 'it\\'s'\r\nGET \"KEY\"\r\n" + theEnd,
		"R3 unbalanced":          "PING\r\nset KEY \"a\r\nPING\r\n",
		"R3 quote then letter":   "set KEY \"a\"b\r\nPING\r\n",
		"R3 too big inline":      strings.Repeat("y", 70_000),
		"R3 zero counts":         "*0\r\n*-1\r\n*-7\r\nPING\r\n" + theEnd,
		"R4 empty bulk":          bulks("SET", "KEY", "") + bulks("GET", "KEY") + bulks("") + theEnd,
		"R5 ping in multi":       "MULTI\r\nPING\r\nSET KEY 1\r\nEXEC\r\n" + theEnd,
		"R6 watch, discard":      "WATCH KEY\r\nMULTI\r\nDISCARD\r\nMULTI\r\nSET KEY 1\r\nEXEC\r\nEXEC\r\nDISCARD\r\n" + theEnd,
		"R7 hello 4":             "HELLO 4\r\nHELLO x\r\nHELLO 3 NOSUCH\r\nHELLO 3 AUTH a\r\n" + theEnd,
		"R7 hello setname":       "HELLO 2 SETNAME KEY\r\nCLIENT GETNAME\r\nHELLO 2 SETNAME 'a b'\r\nCLIENT GETNAME\r\n" + theEnd,
		"R7 hello auth":          "HELLO 2 AUTH nobody wrong\r\nAUTH nobody wrong\r\nAUTH a b c\r\nAUTH\r\n" + theEnd,
		"R8 unsubscribe":         "SUBSCRIBE KEYa KEYb KEYc\r\nUNSUBSCRIBE\r\n" + theEnd,
		"R8 psubscribe, ping":    "PSUBSCRIBE KEY*\r\nPING\r\nGET KEY\r\nPUNSUBSCRIBE\r\n" + theEnd,
		"R8 resp3":               "HELLO 3\r\nSUBSCRIBE KEY\r\nPUBLISH KEY hi\r\nGET KEY\r\nUNSUBSCRIBE\r\n" + theEnd,
		"R9 reply off, skip, on": "CLIENT REPLY OFF\r\nSET KEY 1\r\nCLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nSET KEY 2\r\nGET KEY\r\nCLIENT REPLY NO\r\n" + theEnd,
		"R9 skip, empty line":    "CLIENT REPLY SKIP\r\n\r\nECHO a\r\nCLIENT REPLY SKIP\r\n*0\r\nECHO b\r\nCLIENT REPLY SKIP\r\n*-1\r\nECHO c\r\nCLIENT REPLY SKIP\r\nECHO d\r\n" + theEnd,
		"R12 long bulk":          bulks("SET", "KEY", long) + bulks("GET", "KEY") + bulks("APPEND", "KEY", long) + bulks("STRLEN", "KEY") + theEnd,
		"R12 many arguments":     bulks(append([]string{"SADD", "KEY"}, many(5000)...)...) + bulks("SCARD", "KEY") + theEnd,
		"odd line ends":          "*2\rX$3\rYGET12$" + "3\r\nKEY34" + theEnd,
		"bad count":              "PING\r\n*1x\r\nPING\r\n",
		"bad count, long":        "*" + strings.Repeat("1", 200) + "\r\n",
		"bad count, endless":     "*" + strings.Repeat("1", 70_000),
		"negative bulk":          "*1\r\n$-1\r\n",
		"bad bulk":               "PING\r\n*2\r\n$3\r\nGET\r\n$x\r\n",
		"not a bulk":             "*2\r\n$3\r\nGET\r\n:1\r\n",
		"bulk line, endless":     "*2\r\n$3\r\nGET\r\n$" + strings.Repeat("1", 70_000),
		"huge bulk":              "*2\r\n$3\r\nGET\r\n$99999999999\r\n",
		"bad after long":         "*3\r\n$3\r\nSET\r\n$100000\r\n" + long + "\r\n$-3\r\n",
		"unknown":                "NOSUCHCOMMAND a b\r\nCLIENT\r\nGET\r\nCOMMAND COUNT\r\n" + theEnd,
		"post":                   "POST / HTTP/1.1\r\nHost: x\r\n",
		"quit":                   "SET KEY 1\r\nQUIT\r\nPING\r\n",
		"names":                  "CLIENT GETNAME\r\nCLIENT SETNAME KEY\r\nCLIENT GETNAME\r\nCLIENT SETNAME 'a b'\r\nCLIENT GETNAME\r\nCLIENT SETNAME\r\nCLIENT GETNAME x\r\n" + theEnd,
		"names in multi":         "MULTI\r\nCLIENT SETNAME KEY\r\nCLIENT GETNAME\r\nEXEC\r\nCLIENT SETNAME ''\r\nCLIENT GETNAME\r\n" + theEnd,
		"names, resp3":           "HELLO 3\r\nCLIENT GETNAME\r\n" + theEnd,
		"scripts":                bulks("EVAL", "return {1,'two',{3},redis.call('set',KEYS[1],'v')}", "1", "KEY") + bulks("EVAL", "return redis.error_reply('MY x')", "0") + theEnd,
		"exec errors":            "EXEC\r\nMULTI\r\nMULTI\r\nINCR KEY\r\nEXEC x\r\nMULTI\r\nGET\r\nEXEC\r\n" + theEnd,
		"select":                 "SELECT 1\r\nSET KEY 1\r\nSELECT 0\r\nEXISTS KEY\r\nSELECT 99\r\n" + theEnd,
		"integers":               "SET KEY 9223372036854775807\r\nINCR KEY\r\nDECR KEY\r\n" + theEnd,
		"attributes and types":   "HELLO 3\r\nHSET KEY a 1\r\nHGETALL KEY\r\nINCRBYFLOAT KEYf 1.5\r\nCLIENT TRACKING ON\r\nGET KEYf\r\nSET KEYf 2\r\nGET KEYf\r\n" + theEnd,
	}
	return m
}

func many(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprint("member", i)
	}
	return s
}

// What a bound session sends is answered byte for byte as by the server, whole and in
// pieces.
func TestBoundSessionIsTheServersOwn(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.leadFor(t, 10*time.Minute)
	bind := []string{"FENCE BIND " + lead.Token.Reveal()}
	for name, stream := range streams() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := testenv.Name(t, "k")
			direct := ownKey(talk(t, r.redis.Addr, nil, withKey(stream, key), 0), key)
			for _, piece := range []int{0, 1, 7} {
				if piece == 1 && len(stream) > 3000 {
					piece = 999
				}
				key := testenv.Name(t, "k")
				if got := ownKey(talk(t, r.addr, bind, withKey(stream, key), piece), key); got != direct {
					t.Errorf("in pieces of %d:\nproxy  %.600q\ndirect %.600q", piece, got, direct)
				}
			}
		})
	}
}

// withKey puts the key in; keys have one length, so that counts stay right.
func withKey(stream, key string) string {
	out := strings.ReplaceAll(stream, "$3\r\nKEY", fmt.Sprintf("$%d\r\n%s", len(key), key))
	return strings.ReplaceAll(out, "KEY", key)
}

// ownKey takes what differs between two connections out of the answers.
func ownKey(s, key string) string {
	s = strings.ReplaceAll(s, key, "KEY")
	for _, channel := range []string{"KEYa", "KEYb", "KEYc"} {
		s = strings.ReplaceAll(s, channel, "KEY?") // the server unsubscribes in no order
	}
	if i := strings.Index(s, "$2\r\nid\r\n:"); i >= 0 {
		j := strings.Index(s[i+9:], "\r\n")
		s = s[:i+9] + "ID" + s[i+9+j:]
	}
	return s
}
