package scram

import (
	"crypto/subtle"
	"strconv"
	"strings"
)

// A Server is the server's end of one exchange: First, Challenge, Final, Signature.
type Server struct {
	binding                 string // what the client's c= must say, before base64
	nonce                   string
	first, challenge, final string // the parts of the AuthMessage
}

// First reads the client-first-message. Binding is the channel binding data of the
// mechanism that the client chose, nil for the one without. What else is wrong with a
// message than that it is no such message, the server that stands behind may say.
func (s *Server) First(msg string, binding []byte) error {
	flag, rest, ok := strings.Cut(msg, ",")
	authz, bare, ok2 := strings.Cut(rest, ",")
	if !ok || !ok2 || authz != "" || strings.IndexByte(msg, 0) >= 0 {
		return ErrMalformed
	}
	switch {
	case binding != nil && flag+",," == endPoint:
		s.binding = endPoint + string(binding)
	case binding == nil && (flag == "n" || flag == "y"):
		s.binding = flag + ",,"
	default:
		return ErrMalformed
	}
	a := attributes(bare)
	if _, ok = a.take('n'); !ok {
		return ErrMalformed
	}
	if s.nonce, ok = a.take('r'); !ok || s.nonce == "" || !printable(s.nonce) {
		return ErrMalformed
	}
	for a != "" {
		if _, _, ok := a.next(); !ok {
			return ErrMalformed
		}
	}
	s.first = bare
	return nil
}

// Challenge is the server-first-message. Nonce is the server's part of the nonce, fresh and
// random.
func (s *Server) Challenge(nonce, salt string, iterations int) string {
	s.nonce += nonce
	s.challenge = "r=" + s.nonce + ",s=" + salt + ",i=" + strconv.Itoa(iterations)
	return s.challenge
}

// Final reads the client-final-message and returns the client's key, if it proves the
// client to know it. ErrProof alone means that all but the proof is right.
func (s *Server) Final(msg string, stored *Key) (Key, error) {
	a := attributes(msg)
	binding, ok := a.take('c')
	if !ok || strings.IndexByte(msg, 0) >= 0 {
		return Key{}, ErrMalformed
	}
	nonce, ok := a.take('r')
	if !ok {
		return Key{}, ErrMalformed
	}
	var proof string
	for name := byte(0); name != 'p'; {
		s.final = strings.TrimSuffix(msg[:len(msg)-len(a)], ",")
		if name, proof, ok = a.next(); !ok {
			return Key{}, ErrMalformed
		}
	}
	key, ok := decodeKey(proof)
	if !ok || a != "" || strings.HasSuffix(msg, ",") {
		return Key{}, ErrMalformed
	}
	// INVARIANT: a key is given out only to the channel, and in the exchange, that it was
	// proved for.
	if subtle.ConstantTimeCompare([]byte(binding), []byte(b64.EncodeToString([]byte(s.binding)))) != 1 {
		return Key{}, ErrBinding
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(s.nonce)) != 1 {
		return Key{}, ErrNonce
	}
	signature := sign(stored, s.first, s.challenge, s.final)
	key.xor(&signature)
	if got := key.stored(); subtle.ConstantTimeCompare(got[:], stored[:]) != 1 {
		clear(key[:])
		return Key{}, ErrProof
	}
	return key, nil
}

// Signature is the server-final-message after Final succeeded.
func (s *Server) Signature(server *Key) string {
	k := sign(server, s.first, s.challenge, s.final)
	return "v=" + b64.EncodeToString(k[:])
}
