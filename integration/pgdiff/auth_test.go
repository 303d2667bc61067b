package pgdiff

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// password answers what the server asks for, with a password that may be wrong. Binding is
// libpq's channel_binding; empty is prefer.
func (r *run) password(c *conn, user, password, binding string) error {
	c.flush()
	m, err := c.await('R', 1)
	if err != nil {
		return err
	}
	in := &reader{b: m.body}
	switch code := in.u32(); code {
	case 3:
		return r.say(c, "p", password+"\x00")
	case 5:
		inner := md5.Sum([]byte(password + user))
		outer := md5.Sum(append([]byte(hex.EncodeToString(inner[:])), in.take(4)...))
		return r.say(c, "p", "md5"+hex.EncodeToString(outer[:])+"\x00")
	case 10:
		return r.scram(c, password, string(m.body[4:]), binding)
	default:
		return fmt.Errorf("asked for authentication %d", code)
	}
}

// scram is SCRAM-SHA-256 as libpq does it: with channel binding where there is TLS and the
// server offers it.
func (r *run) scram(c *conn, password, offered, binding string) error {
	mechanism, header, bound := "SCRAM-SHA-256", "n,,", []byte(nil)
	if t, ok := c.c.(*tls.Conn); ok && binding != "disable" {
		header = "y,,"
		if strings.Contains(offered, "SCRAM-SHA-256-PLUS\x00") {
			cert := sha256.Sum256(t.ConnectionState().PeerCertificates[0].Raw)
			mechanism, header, bound = "SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,", cert[:]
		}
	}
	first := "n=,r=" + rand.Text()
	if err := r.say(c, "p", mechanism+"\x00"+string(be32(len(header+first)))+header+first); err != nil {
		return err
	}
	c.flush()
	m, err := c.await('R', 1)
	if err != nil {
		return err
	}
	server := string(m.body[4:])
	nonce, salt, rounds, ok := scramFields(server)
	if !ok {
		return fmt.Errorf("not understood: %q", server)
	}
	key, err := pbkdf2.Key(sha256.New, password, salt, rounds, 32)
	if err != nil {
		return err
	}
	client := mac(key, "Client Key")
	stored := sha256.Sum256(client)
	final := "c=" + base64.StdEncoding.EncodeToString(append([]byte(header), bound...)) + ",r=" + nonce
	signature := mac(stored[:], first+","+server+","+final)
	for i := range client {
		client[i] ^= signature[i]
	}
	return r.say(c, "p", final+",p="+base64.StdEncoding.EncodeToString(client))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func be32(n int) []byte { return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }

// scramFields reads what the server says first.
func scramFields(s string) (nonce string, salt []byte, rounds int, ok bool) {
	f := strings.Split(s, ",")
	if len(f) != 3 || !strings.HasPrefix(f[0], "r=") || !strings.HasPrefix(f[1], "s=") || !strings.HasPrefix(f[2], "i=") {
		return "", nil, 0, false
	}
	salt, err := base64.StdEncoding.DecodeString(f[1][2:])
	rounds, err2 := strconv.Atoi(f[2][2:])
	return f[0][2:], salt, rounds, err == nil && err2 == nil
}
