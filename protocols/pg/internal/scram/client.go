package scram

import (
	"crypto/subtle"
	"strconv"
	"strings"
)

// A Client is the client's end of one exchange: First, Challenge, Final, Check.
type Client struct {
	header                  string // gs2
	binding                 []byte
	nonce                   string
	first, challenge, final string
}

// First is the client-first-message. Nonce is fresh and random. Binding is the channel
// binding data of Plus; nil means Plain. The user is left empty: Postgres takes the one of
// the start-up packet.
func (c *Client) First(nonce string, binding []byte) string {
	c.nonce, c.binding, c.header = nonce, binding, "n,,"
	if binding != nil {
		c.header = endPoint
	}
	c.first = "n=,r=" + nonce
	return c.header + c.first
}

// Challenge reads the server-first-message.
func (c *Client) Challenge(msg string) (salt string, iterations int, err error) {
	a := attributes(msg)
	nonce, ok1 := a.take('r')
	salt, ok2 := a.take('s')
	count, ok3 := a.take('i')
	if !ok1 || !ok2 || !ok3 || a != "" || strings.HasSuffix(msg, ",") || !printable(nonce) {
		return "", 0, ErrMalformed
	}
	n, err := strconv.ParseInt(count, 10, 32)
	if _, err64 := b64.DecodeString(salt); err != nil || err64 != nil || n < 1 || salt == "" {
		return "", 0, ErrMalformed
	}
	if !strings.HasPrefix(nonce, c.nonce) || len(nonce) == len(c.nonce) {
		return "", 0, ErrNonce
	}
	c.nonce, c.challenge = nonce, msg
	return salt, int(n), nil
}

// Final is the client-final-message that proves to know the key.
func (c *Client) Final(key *Key) string {
	c.final = "c=" + b64.EncodeToString(append([]byte(c.header), c.binding...)) + ",r=" + c.nonce
	stored := key.stored()
	proof := sign(&stored, c.first, c.challenge, c.final)
	proof.xor(key)
	clear(stored[:])
	return c.final + ",p=" + b64.EncodeToString(proof[:])
}

// Check reads the server-final-message: ErrSignature means that the server does not know
// the verifier.
func (c *Client) Check(msg string, server *Key) error {
	value, ok := strings.CutPrefix(msg, "v=")
	got, ok2 := decodeKey(value)
	if !ok || !ok2 {
		return ErrMalformed
	}
	want := sign(server, c.first, c.challenge, c.final)
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return ErrSignature
	}
	return nil
}
