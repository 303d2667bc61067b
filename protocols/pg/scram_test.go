package pg

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/protocols/pg/internal/scram"
)

const testSalt = "W22ZaJ0SNY7soEsUEjb6gQ=="

// secret is what a client makes of a password, and the verifier that goes with it.
func secret(t testing.TB, password, salt string) (scram.Key, string) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(salt)
	if err != nil {
		t.Fatal(err)
	}
	salted, err := pbkdf2.Key(sha256.New, password, raw, 4096, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	derive := func(what string) (k scram.Key) {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(what))
		h.Sum(k[:0])
		return k
	}
	client, server := derive("Client Key"), derive("Server Key")
	stored := sha256.Sum256(client[:])
	b64 := base64.StdEncoding.EncodeToString
	return client, fmt.Sprintf("SCRAM-SHA-256$4096:%s$%s:%s", salt, b64(stored[:]), b64(server[:]))
}

// A login is a SCRAM login through a core: a client's and a server's end on either side.
type scramLogin struct {
	*driver
	t      testing.TB
	piece  int
	client scram.Client
	server scram.Server
	key    scram.Key       // the client's
	holds  *scram.Verifier // the server's
	shown  []byte          // the client's channel binding data
	own    []byte          // the server's
	got    scram.Key       // what the client proved to the server
}

func (l *scramLogin) give(b []byte, to func([]byte)) {
	for len(b) > 0 {
		n := len(b)
		if l.piece > 0 {
			n = min(n, l.piece)
		}
		to(b[:n])
		b = b[n:]
	}
}

func (l *scramLogin) say(b []byte)    { l.give(b, l.driver.client) }
func (l *scramLogin) answer(b []byte) { l.give(b, l.driver.server) }

// heard takes the one message that went to the client.
func (l *scramLogin) heard() (typ byte, code uint32, data string) {
	l.t.Helper()
	b := l.down
	l.down = nil
	if len(b) < 5 {
		return 0, 0, ""
	}
	typ, n := header(b)
	if len(b) != 1+n {
		l.t.Fatalf("not one message: %q", b)
	}
	if typ != 'R' {
		return typ, 0, string(b[5:])
	}
	return typ, binary.BigEndian.Uint32(b[5:]), string(b[9:])
}

// sawn takes the one message that went to the server.
func (l *scramLogin) sawn() string {
	l.t.Helper()
	b := l.up
	l.up = nil
	if len(b) < 5 {
		return ""
	}
	if typ, n := header(b); typ != 'p' || len(b) != 1+n {
		l.t.Fatalf("not one answer: %q", b)
	}
	return string(b[5:])
}

func offerOf(names ...string) []byte {
	return appendAuth(nil, authSASL, strings.Join(append(names, ""), "\x00")+"\x00")
}

func initial(mechanism, first string) []byte {
	b := append([]byte(mechanism), 0)
	return appendBody(nil, 'p', append(binary.BigEndian.AppendUint32(b, uint32(len(first))), first...))
}

func newLogin(t testing.TB, piece int, c channels) *scramLogin {
	l := &scramLogin{driver: newDriver(), t: t, piece: piece, shown: c.client, own: c.server}
	l.c.channels = c
	var text string
	l.key, text = secret(t, "pencil", testSalt)
	l.holds, _ = scram.ParseVerifier(text)
	l.verifier = text
	return l
}

var legs = channels{encrypted: true, client: []byte("hash of the proxy's"), server: []byte("hash of the server's"), verifiers: true}

// challenged goes up to the client's challenge.
func (l *scramLogin) challenged() {
	l.t.Helper()
	l.answer(offerOf(scram.Plus, scram.Plain))
	if _, _, data := l.heard(); !strings.HasPrefix(data, scram.Plus+"\x00") {
		l.t.Fatalf("offered %q", data)
	}
	l.say(initial(scram.Plus, l.client.First("client", l.shown)))
	mechanism, rest, _ := strings.Cut(l.sawn(), "\x00")
	if (mechanism == scram.Plus) != (l.own != nil) || len(rest) < 4 {
		l.t.Fatalf("chose %q %q", mechanism, rest)
	}
	if err := l.server.First(rest[4:], l.own); err != nil {
		l.t.Fatal(err)
	}
	l.answer(appendAuth(nil, authSASLContinue, l.server.Challenge("server", l.holds.Salt, l.holds.Iterations)))
	_, code, data := l.heard()
	salt, n, err := l.client.Challenge(data)
	if code != authSASLContinue || salt != l.holds.Salt || n != l.holds.Iterations || err != nil {
		l.t.Fatalf("%d %q: %v", code, data, err)
	}
}

// prove sends the client's final message, and says whether the server takes what comes.
func (l *scramLogin) prove() error {
	l.t.Helper()
	l.say(appendBody(nil, 'p', []byte(l.client.Final(&l.key))))
	var err error
	l.got, err = l.server.Final(l.sawn(), &l.holds.StoredKey)
	return err
}

func pieces(t *testing.T, f func(t *testing.T, piece int)) {
	for _, piece := range []int{0, 1, 2, 7} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) { f(t, piece) })
	}
}

func TestScramInTheMiddle(t *testing.T) {
	noHash := legs
	noHash.server = nil
	for name, c := range map[string]channels{"bound": legs, "a server's certificate without hash": noHash} {
		t.Run(name, func(t *testing.T) { inTheMiddle(t, c) })
	}
}

func inTheMiddle(t *testing.T, c channels) {
	pieces(t, func(t *testing.T, piece int) {
		l := newLogin(t, piece, c)
		l.challenged()
		if err := l.prove(); err != nil || l.got != l.key {
			t.Fatalf("the server was not convinced: %v", err)
		}
		if len(l.down) > 0 {
			t.Fatalf("told the client before the server proved itself: %q", l.down)
		}
		v := l.c.middle.verifier
		l.answer(appendAuth(nil, authSASLFinal, l.server.Signature(&l.holds.ServerKey)))
		_, code, data := l.heard()
		if err := l.client.Check(data, &l.holds.ServerKey); code != authSASLFinal || err != nil {
			t.Fatalf("%d %q: %v", code, data, err)
		}
		if l.c.middle != nil || v.StoredKey != (scram.Key{}) || v.ServerKey != (scram.Key{}) {
			t.Error("the verifier was kept")
		}
		l.answer(appendAuth(nil, authOK, ""))
		if typ, code, _ := l.heard(); typ != 'R' || code != authOK || !l.c.authOK {
			t.Errorf("%c %d", typ, code)
		}
		if l.verifies != 1 {
			t.Errorf("%d look-ups", l.verifies)
		}
	})
}

// The server is left to refuse, and to say how.
func TestScramThatFails(t *testing.T) {
	other, _ := secret(t, "other", testSalt)
	for name, change := range map[string]func(l *scramLogin){
		"wrong password":    func(l *scramLogin) { l.key = other },
		"no verifier":       func(l *scramLogin) { l.verifier = "" },
		"an MD5 one":        func(l *scramLogin) { l.verifier = "md5d41d8cd98f00b204e9800998ecf8427e" },
		"an outdated one":   func(l *scramLogin) { _, l.verifier = secret(t, "pencil", "QUJD") },
		"other iterations":  func(l *scramLogin) { l.verifier = strings.Replace(l.verifier, "4096", "4097", 1) },
		"another's":         func(l *scramLogin) { _, l.verifier = secret(t, "other", testSalt) },
		"bound to another":  func(l *scramLogin) { l.shown = []byte("hash of the attacker's") },
		"bound to server's": func(l *scramLogin) { l.shown = []byte("hash of the server's") },
	} {
		t.Run(name, func(t *testing.T) {
			pieces(t, func(t *testing.T, piece int) {
				l := newLogin(t, piece, legs)
				change(l)
				l.challenged()
				if err := l.prove(); err == nil {
					t.Fatal("the server was convinced")
				}
				l.answer(appendMessage(nil, 'E', "SFATAL", "VFATAL", "C28P01", "Mits own words", ""))
				if typ, _, data := l.heard(); typ != 'E' || !strings.Contains(data, "its own words") {
					t.Errorf("%c %q", typ, data)
				}
			})
		})
	}
}

// A server that does not prove itself does not get its client logged in.
func TestScramServerThatCheats(t *testing.T) {
	_, otherText := secret(t, "other", testSalt)
	other, _ := scram.ParseVerifier(otherText)
	for name, answer := range map[string]func(l *scramLogin) []byte{
		"a wrong signature": func(l *scramLogin) []byte {
			return appendAuth(nil, authSASLFinal, l.server.Signature(&other.ServerKey))
		},
		"no signature":     func(*scramLogin) []byte { return appendAuth(nil, authSASLFinal, "") },
		"ok at once":       func(*scramLogin) []byte { return appendAuth(nil, authOK, "") },
		"a new offer":      func(*scramLogin) []byte { return offerOf(scram.Plain) },
		"a plain password": func(*scramLogin) []byte { return appendAuth(nil, 3, "") },
		"a new challenge": func(l *scramLogin) []byte {
			return appendAuth(nil, authSASLContinue, l.server.Challenge("x", testSalt, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			pieces(t, func(t *testing.T, piece int) {
				l := newLogin(t, piece, legs)
				l.challenged()
				if err := l.prove(); err != nil {
					t.Fatal(err)
				}
				l.answer(answer(l))
				if typ, _, data := l.heard(); typ != 'E' || !strings.Contains(data, "VFATAL") || l.c.authOK {
					t.Errorf("%c %q", typ, data)
				}
			})
		})
	}
	t.Run("a challenge of its own", func(t *testing.T) {
		l := newLogin(t, 0, legs)
		l.answer(offerOf(scram.Plus, scram.Plain))
		l.say(initial(scram.Plus, l.client.First("client", l.shown)))
		l.down = nil
		l.answer(appendAuth(nil, authSASLContinue, "r=mine,s="+testSalt+",i=4096"))
		if typ, _, data := l.heard(); typ != 'E' || !strings.Contains(data, "08P01") {
			t.Errorf("%c %q", typ, data)
		}
	})
}

// What needs no help passes byte by byte.
func TestScramThatPasses(t *testing.T) {
	same := legs
	same.same = true
	none := legs
	none.verifiers = false
	for name, c := range map[string]struct {
		channels
		first []byte
	}{
		"same certificate":    {same, initial(scram.Plus, "p=tls-server-end-point,,n=,r=x")},
		"no binding wanted":   {legs, initial(scram.Plain, "n,,n=,r=x")},
		"the same, no lookup": {none, initial(scram.Plain, "n,,n=,r=x")},
		"a lie":               {legs, initial(scram.Plain, "y,,n=,r=x")},
		"nonsense":            {legs, initial(scram.Plus, "n,,n=,r=x")},
		"more nonsense":       {legs, appendBody(nil, 'p', []byte(scram.Plus))},
		"no length":           {legs, appendBody(nil, 'p', []byte(scram.Plus+"\x00\x00\x00"))},
		"no first message":    {legs, appendBody(nil, 'p', []byte(scram.Plus+"\x00\xff\xff\xff\xff"))},
		"too long":            {legs, initial(scram.Plus, "p=tls-server-end-point,,n=,r="+strings.Repeat("x", maxSASL))},
		"another mechanism":   {legs, initial("OAUTHBEARER", "n,,auth=")},
	} {
		t.Run(name, func(t *testing.T) {
			pieces(t, func(t *testing.T, piece int) {
				l := newLogin(t, piece, c.channels)
				for _, m := range [][]byte{offerOf(scram.Plus, scram.Plain), appendAuth(nil, authSASLContinue, "anything"), appendAuth(nil, authSASLFinal, "more"), appendAuth(nil, authOK, "")} {
					l.answer(m)
					if !bytes.Equal(l.down, m) {
						t.Errorf("to the client %q", l.down)
					}
					l.up, l.down = nil, nil
					if m[8] == authOK {
						break
					}
					l.say(c.first)
					if !bytes.Equal(l.up, c.first) {
						t.Errorf("to the server %q", l.up)
					}
				}
			})
		})
	}
}

// Authentication of other kinds passes, too.
func TestOtherAuthenticationPasses(t *testing.T) {
	for code, data := range map[uint32]string{3: "", 5: "salt", 7: "", 8: "token", 9: ""} {
		for _, c := range []channels{{}, legs} {
			l := newLogin(t, 1, c)
			m := appendAuth(nil, code, data)
			l.answer(m)
			p := appendBody(nil, 'p', bytes.Repeat([]byte("secret"), 1000))
			l.say(p)
			if !bytes.Equal(l.down, m) || !bytes.Equal(l.up, p) {
				t.Errorf("%d: %q %q", code, l.down, l.up)
			}
		}
	}
}

func TestScramOffer(t *testing.T) {
	noHash := legs
	noHash.client = nil
	all := offerOf(scram.Plus, scram.Plain)
	for name, c := range map[string]struct {
		channels
		want []byte
	}{
		"plain client":         {channels{server: legs.server}, offerOf(scram.Plain)},
		"plain client, lookup": {channels{server: legs.server, verifiers: true}, offerOf(scram.Plain)},
		"no hash":              {noHash, offerOf(scram.Plain)},
		"both":                 {legs, all},
	} {
		for piece := range 3 {
			l := newLogin(t, piece, c.channels)
			l.answer(all)
			if !bytes.Equal(l.down, c.want) {
				t.Errorf("%s: %q", name, l.down)
			}
		}
	}
	l := newLogin(t, 0, channels{})
	l.answer(offerOf(scram.Plus, "OAUTHBEARER", scram.Plain))
	if !bytes.Equal(l.down, offerOf("OAUTHBEARER", scram.Plain)) {
		t.Errorf("%q", l.down)
	}
}

// A client that could bind, but not to the proxy's certificate, says so; the server would
// take that for an attack.
func TestScramCertificateWithoutHash(t *testing.T) {
	c := legs
	c.client = nil
	l := newLogin(t, 0, c)
	l.answer(offerOf(scram.Plus, scram.Plain))
	l.down = nil
	first := "y" + l.client.First("client", nil)[1:]
	l.say(initial(scram.Plain, first))
	if mechanism, rest, _ := strings.Cut(l.sawn(), "\x00"); mechanism != scram.Plus || l.server.First(rest[4:], l.own) != nil {
		t.Errorf("%q %q", mechanism, rest)
	}
}

func TestScramWithoutVerifiers(t *testing.T) {
	c := legs
	c.verifiers = false
	pieces(t, func(t *testing.T, piece int) {
		l := newLogin(t, piece, c)
		l.answer(offerOf(scram.Plus, scram.Plain))
		l.down = nil
		l.say(initial(scram.Plus, l.client.First("client", l.shown)))
		l.turnServer()
		typ, _, data := l.heard()
		if typ != 'E' || !strings.Contains(data, "C28000") || !strings.Contains(data, "install --scram") || len(l.up) > 0 {
			t.Errorf("%c %q, upstream %q", typ, data, l.up)
		}
	})
}

// Messages that come too early wait for their turn; statements are not even looked at.
func TestScramEarlyMessages(t *testing.T) {
	l := newLogin(t, 0, legs)
	l.answer(offerOf(scram.Plus, scram.Plain))
	l.say(append(initial(scram.Plus, l.client.First("client", l.shown)), appendBody(nil, 'p', []byte("early"))...))
	if s := l.sawn(); strings.Contains(s, "early") {
		t.Errorf("%q", s)
	}
	l = newLogin(t, 0, legs)
	l.challenged()
	l.say(appendQuery(nil, "DROP TABLE t"))
	if got := string(l.up); got != "Q\x00\x00\x00\x04" {
		t.Errorf("upstream %q", got)
	}
}

// A statement where a password was asked for: the server says what it thinks of its type.
func TestStatementInsteadOfPassword(t *testing.T) {
	for _, code := range []uint32{3, 5, 7, 8, 10} {
		l := newLogin(t, 0, channels{})
		l.say(appendQuery(nil, "DROP TABLE t"))
		if len(l.up) > 0 {
			t.Errorf("upstream before it was asked: %q", l.up)
		}
		l.answer(appendAuth(nil, code, scram.Plain+"\x00\x00"))
		if got := string(l.up); got != "Q\x00\x00\x00\x04" {
			t.Errorf("%d: upstream %q", code, got)
		}
	}
	l := newLogin(t, 0, channels{})
	l.answer(appendAuth(nil, authOK, ""))
	l.say(appendQuery(nil, "DROP TABLE t"))
	if len(l.up) > 0 {
		t.Errorf("upstream after login: %q", l.up)
	}
}

// FuzzLogin: whatever either side says, the core neither panics nor depends on how the bytes
// come, no statement goes upstream, and no login ends well that the proxy was in the
// middle of and the server did not prove to be part of.
func FuzzLogin(f *testing.F) {
	first := func() []byte { return initial(scram.Plus, (&scram.Client{}).First("client", legs.client)) }
	f.Add(offerOf(scram.Plus, scram.Plain), first(), appendAuth(nil, authSASLContinue, "r=nonce1x,s="+testSalt+",i=4096"),
		appendBody(nil, 'p', []byte("c=biws,r=clientnonce2,p=")), appendAuth(nil, authSASLFinal, "v="), uint8(1), uint8(7))
	f.Add(offerOf(scram.Plus), initial(scram.Plain, "y,,n=,r=x"), []byte{}, []byte{}, appendAuth(nil, authOK, ""), uint8(2), uint8(3))
	f.Add(appendAuth(nil, 3, ""), appendQuery(nil, "DROP TABLE t"), []byte{}, []byte{}, []byte{}, uint8(0), uint8(0))
	_, text := secret(f, "pencil", testSalt)
	f.Fuzz(func(t *testing.T, s1, c1, s2, c2, s3 []byte, piece, kind uint8) {
		run := func(n int) *driver {
			d := newDriver()
			d.verifier = text
			d.c.channels = channels{encrypted: kind&1 != 0, same: kind&8 != 0, verifiers: kind&2 != 0, server: legs.server}
			if kind&4 != 0 {
				d.c.channels.client = legs.client
			}
			give := func(b []byte, to func([]byte)) {
				for len(b) > 0 {
					k := min(n, len(b))
					to(b[:k])
					b = b[k:]
				}
			}
			give(s1, d.server)
			give(c1, d.client)
			give(s2, d.server)
			was := d.c.sasl
			give(c2, d.client)
			// The fuzzer cannot make a proof: so nothing may go on as if it had.
			if was == challenged && d.c.sasl == proved {
				t.Error("a proof from nowhere")
			}
			give(s3, d.server)
			if d.c.authOK && d.c.sasl > offered && d.c.sasl != vouched || d.c.sasl == vouched {
				t.Errorf("logged in at %d", d.c.sasl)
			}
			return d
		}
		whole, split := run(1<<30), run(int(piece)+1)
		// A client is heard until the server's last message, which may come in the same piece.
		if !whole.c.over() && !bytes.Equal(whole.up, split.up) {
			t.Errorf("in pieces upstream\n%q\nwhole\n%q", split.up, whole.up)
		}
		if whole.c.phase != login {
			return
		}
		for b := whole.up; len(b) >= 5; {
			typ, n := header(b)
			if typ != 'p' && typ != 'X' && n != 4 {
				t.Errorf("%q went upstream during login", b)
			}
			if n < 4 || 1+n > len(b) {
				break
			}
			b = b[1+n:]
		}
	})
}

// After its last message a server may say what it likes.
func TestNothingFollowsFatal(t *testing.T) {
	fatal := appendMessage(nil, 'E', "SFATAL", "VFATAL", "C28P01", "Mno", "")
	for _, piece := range []int{0, 1, 7} {
		l := newLogin(t, piece, legs)
		l.answer(append(bytes.Clone(fatal), "E\x00\x00\x00\x00 and more"...))
		if !bytes.Equal(l.down, fatal) {
			t.Errorf("%q", l.down)
		}
	}
}
