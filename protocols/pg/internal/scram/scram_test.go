package scram

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// keys derives what a client and a server keep of a password.
func keys(t testing.TB, password, salt string, iterations int) (client Key, v *Verifier) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(salt)
	if err != nil {
		t.Fatal(err)
	}
	salted, err := pbkdf2.Key(sha256.New, password, raw, iterations, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	derive := func(what string) (k Key) {
		h := hmac.New(sha256.New, salted)
		h.Write([]byte(what))
		h.Sum(k[:0])
		return k
	}
	client = derive("Client Key")
	return client, &Verifier{Salt: salt, Iterations: iterations, StoredKey: client.stored(), ServerKey: derive("Server Key")}
}

func (v *Verifier) text() string {
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", v.Iterations, v.Salt, b64.EncodeToString(v.StoredKey[:]), b64.EncodeToString(v.ServerKey[:]))
}

// The exchange of RFC 7677, section 3.
const (
	rfcFirst     = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
	rfcMore      = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
	rfcSalt      = "W22ZaJ0SNY7soEsUEjb6gQ=="
	rfcChallenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	rfcFinal     = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	rfcSignature = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
)

func TestServerOfRFC7677(t *testing.T) {
	client, v := keys(t, "pencil", rfcSalt, 4096)
	var s Server
	if err := s.First(rfcFirst, nil); err != nil {
		t.Fatal(err)
	}
	if got := s.Challenge(rfcMore, v.Salt, v.Iterations); got != rfcChallenge {
		t.Errorf("challenge %q", got)
	}
	got, err := s.Final(rfcFinal, &v.StoredKey)
	if err != nil || got != client {
		t.Errorf("%x, %v", got, err)
	}
	if got := s.Signature(&v.ServerKey); got != rfcSignature {
		t.Errorf("signature %q", got)
	}
}

func TestClientOfRFC7677(t *testing.T) {
	key, v := keys(t, "pencil", rfcSalt, 4096)
	var c Client
	c.First("rOprNGfwEbeRWgbNEkqO", nil)
	c.first = "n=user,r=rOprNGfwEbeRWgbNEkqO" // the RFC names a user
	salt, n, err := c.Challenge(rfcChallenge)
	if salt != rfcSalt || n != 4096 || err != nil {
		t.Errorf("%q %d %v", salt, n, err)
	}
	if got := c.Final(&key); got != rfcFinal {
		t.Errorf("final %q", got)
	}
	if err := c.Check(rfcSignature, &v.ServerKey); err != nil {
		t.Error(err)
	}
	for msg, want := range map[string]error{
		"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=": ErrSignature,
		"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4":  ErrMalformed,
		"e=other-error":     ErrMalformed,
		"":                  ErrMalformed,
		rfcSignature + ",":  ErrMalformed,
		rfcSignature + "\n": ErrMalformed,
	} {
		if err := c.Check(msg, &v.ServerKey); !errors.Is(err, want) {
			t.Errorf("%q: %v, not %v", msg, err, want)
		}
	}
}

// TestMiddle is what the proxy does: what one end learned is what the other proves.
func TestMiddle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		binding := func(name string) []byte {
			if !rapid.Bool().Draw(rt, "bind "+name) {
				return nil
			}
			return rapid.SliceOfN(rapid.Byte(), 32, 64).Draw(rt, name)
		}
		nonce := func() string { return rand.Text() }
		key, v := keys(t, rapid.String().Draw(rt, "password"), b64.EncodeToString(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(rt, "salt")), 1)
		toProxy, toServer := binding("to proxy"), binding("to server")
		var client, upstream Client
		var proxy, server Server
		must := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		must(proxy.First(client.First(nonce(), toProxy), toProxy))
		must(server.First(upstream.First(nonce(), toServer), toServer))
		salt, n, err := upstream.Challenge(server.Challenge(nonce(), v.Salt, v.Iterations))
		must(err)
		_, _, err = client.Challenge(proxy.Challenge(nonce(), salt, n))
		must(err)
		learned, err := proxy.Final(client.Final(&key), &v.StoredKey)
		must(err)
		_, err = server.Final(upstream.Final(&learned), &v.StoredKey)
		must(err)
		must(upstream.Check(server.Signature(&v.ServerKey), &v.ServerKey))
		must(client.Check(proxy.Signature(&v.ServerKey), &v.ServerKey))
		// One end's messages are worth nothing at the other.
		if _, err := server.Final(client.Final(&key), &v.StoredKey); err == nil {
			rt.Fatal("a proof was taken in another exchange")
		}
		if err := client.Check(server.Signature(&v.ServerKey), &v.ServerKey); err == nil {
			rt.Fatal("a signature was taken in another exchange")
		}
	})
}

func TestFirstMessages(t *testing.T) {
	bound := []byte("hash")
	for msg, ok := range map[string][2]bool{ // as Plain, as Plus
		"n,,n=,r=abc":                          {true, false},
		"y,,n=,r=abc":                          {true, false},
		"n,,n=user,r=abc,x=more,y=":            {true, false},
		"p=tls-server-end-point,,n=,r=abc":     {false, true},
		"p=tls-unique,,n=,r=abc":               {false, false},
		"p=tls-server-end-point,a=x,n=,r=abc":  {false, false},
		"n,a=other,n=,r=abc":                   {false, false},
		"n,,m=ext,n=,r=abc":                    {false, false},
		"n,,r=abc,n=":                          {false, false},
		"n,,n=,r=":                             {false, false},
		"n,,n=,r=a b":                          {false, false},
		"n,,n=,r=a\x7f":                        {false, false},
		"n,,n=,r=abc,=x":                       {false, false},
		"n,,n=,r=a\x00bc":                      {false, false},
		"n,n=,r=abc":                           {false, false},
		"n":                                    {false, false},
		"":                                     {false, false},
		"P=tls-server-end-point,,n=,r=abc":     {false, false},
		"p=tls-server-end-point ,,n=,r=abc":    {false, false},
		"ny,,n=,r=abc":                         {false, false},
		"p=tls-server-end-point\x00,,n=,r=abc": {false, false},
		"p=tls-server-end-point,,n=,r=abc,x=\x00": {false, false},
	} {
		for i, b := range [][]byte{nil, bound} {
			if err := new(Server).First(msg, b); (err == nil) != ok[i] {
				t.Errorf("%q, %q: %v", msg, b, err)
			}
		}
	}
}

func TestFinalMessages(t *testing.T) {
	_, v := keys(t, "pencil", rfcSalt, 4096)
	replace := func(old, new string) string {
		if !strings.Contains(rfcFinal, old) {
			t.Fatal(old)
		}
		return strings.Replace(rfcFinal, old, new, 1)
	}
	for msg, want := range map[string]error{
		rfcFinal:                        nil,
		replace("c=biws", "c=eSws"):     ErrBinding,
		replace("c=biws", "c="):         ErrBinding,
		replace("c=biws,", ""):          ErrMalformed,
		replace("r=rO", "r=xO"):         ErrNonce,
		replace("k0,p", "k01,p"):        ErrNonce,
		replace("k0,p", "k,p"):          ErrNonce,
		replace(",p=", ",x=y,p="):       ErrProof,
		replace("p=d", "p=e"):           ErrProof,
		replace("VQ=", "VR="):           ErrMalformed,
		replace("VQ=", "VQ0"):           ErrMalformed,
		replace("VQ=", "VQ"):            ErrMalformed,
		replace("VQ=", "VQ=,x=y"):       ErrMalformed,
		replace("VQ=", "VQ=,"):          ErrMalformed,
		replace("VQ=", "\r\n="):         ErrMalformed,
		replace(",p=", ",q="):           ErrMalformed,
		"c=biws,r=rOprNGfwEbeRWgbNEkqO": ErrMalformed,
		"":                              ErrMalformed,
	} {
		var s Server
		if err := s.First(rfcFirst, nil); err != nil {
			t.Fatal(err)
		}
		s.Challenge(rfcMore, v.Salt, v.Iterations)
		key, err := s.Final(msg, &v.StoredKey)
		if !errors.Is(err, want) || (err == nil) != (key != Key{}) {
			t.Errorf("%q: %v, not %v", msg, err, want)
		}
	}
}

func TestChallenges(t *testing.T) {
	for msg, want := range map[string]error{
		"r=nonce1,s=QUJD,i=1":          nil,
		"r=nonce1,s=QUJD,i=2147483647": nil,
		"r=nonce,s=QUJD,i=1":           ErrNonce,
		"r=nonc1,s=QUJD,i=1":           ErrNonce,
		"r=,s=QUJD,i=1":                ErrNonce,
		"r=nonce 1,s=QUJD,i=1":         ErrMalformed,
		"r=nonce1,s=,i=1":              ErrMalformed,
		"r=nonce1,s=Q,i=1":             ErrMalformed,
		"r=nonce1,s=QUJD,i=0":          ErrMalformed,
		"r=nonce1,s=QUJD,i=-1":         ErrMalformed,
		"r=nonce1,s=QUJD,i=":           ErrMalformed,
		"r=nonce1,s=QUJD,i=2147483648": ErrMalformed,
		"r=nonce1,s=QUJD,i=1,x=y":      ErrMalformed,
		"r=nonce1,s=QUJD,i=1,":         ErrMalformed,
		"m=x,r=nonce1,s=QUJD,i=1":      ErrMalformed,
		"e=other-error":                ErrMalformed,
		"":                             ErrMalformed,
	} {
		var c Client
		c.First("nonce", nil)
		if _, _, err := c.Challenge(msg); !errors.Is(err, want) {
			t.Errorf("%q: %v, not %v", msg, err, want)
		}
	}
}

func TestVerifiers(t *testing.T) {
	_, v := keys(t, "pencil", rfcSalt, 4096)
	good := v.text()
	if got, err := ParseVerifier(good); err != nil || *got != *v {
		t.Errorf("%+v, %v", got, err)
	}
	replace := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, s := range []string{
		"", "secret", "md5d41d8cd98f00b204e9800998ecf8427e", good + "x", good[:len(good)-1], replace("SHA-256", "SHA-1"),
		replace("4096", "0"), replace("4096", "-1"), replace("4096", ""), replace("4096", "4096x"), replace(rfcSalt, ""), replace("==$", "=$"),
		replace(rfcSalt, "$"), strings.ToLower(good),
	} {
		if _, err := ParseVerifier(s); !errors.Is(err, ErrVerifier) || s != "" && strings.Contains(err.Error(), s) {
			t.Errorf("%q: %v", s, err)
		}
	}
	v.Clear()
	if v.StoredKey != (Key{}) || v.ServerKey != (Key{}) {
		t.Error("keys are left")
	}
}

// FuzzServer: whatever comes, a key comes out only with a right proof, binding and nonce.
func FuzzServer(f *testing.F) {
	f.Add(rfcFirst, rfcFinal, []byte(nil))
	f.Add("p=tls-server-end-point,,n=,r=abc", "c=cD10bHMtc2VydmVyLWVuZC1wb2ludCwseA==,r=abcmore,p=", []byte("x"))
	client, v := keys(f, "pencil", rfcSalt, 4096)
	f.Fuzz(func(t *testing.T, first, final string, binding []byte) {
		if len(binding) == 0 {
			binding = nil
		}
		var s Server
		if s.First(first, binding) != nil {
			return
		}
		s.Challenge(rfcMore, v.Salt, v.Iterations)
		key, err := s.Final(final, &v.StoredKey)
		if err != nil {
			if key != (Key{}) {
				t.Error("a key with an error")
			}
			return
		}
		if key != client || first != rfcFirst || final != rfcFinal {
			t.Errorf("%q %q proved something", first, final)
		}
	})
}

// FuzzClient: a server's messages are taken or refused, no more.
func FuzzClient(f *testing.F) {
	f.Add(rfcChallenge, rfcSignature)
	f.Add("r=rOprNGfwEbeRWgbNEkqO1,s=QQ==,i=1", "v=")
	key, v := keys(f, "pencil", rfcSalt, 4096)
	f.Fuzz(func(t *testing.T, challenge, signature string) {
		var c Client
		c.First("rOprNGfwEbeRWgbNEkqO", nil)
		salt, n, err := c.Challenge(challenge)
		if err != nil {
			return
		}
		if n < 1 || salt == "" {
			t.Errorf("%q: %q, %d", challenge, salt, n)
		}
		c.Final(&key)
		if c.Check(signature, &v.ServerKey) == nil && signature != "v="+b64.EncodeToString(func() []byte { k := sign(&v.ServerKey, c.first, c.challenge, c.final); return k[:] }()) {
			t.Errorf("%q was taken", signature)
		}
	})
}

// FuzzVerifier: what is read is written the same.
func FuzzVerifier(f *testing.F) {
	_, v := keys(f, "pencil", rfcSalt, 4096)
	f.Add(v.text())
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVerifier(s)
		if err != nil {
			return
		}
		again, err := ParseVerifier(v.text())
		if err != nil || *again != *v {
			t.Errorf("%q: %+v, %v", s, again, err)
		}
	})
}
