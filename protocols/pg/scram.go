package pg

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"

	"github.com/fenceproxy/fenceproxy/protocols/pg/internal/scram"
)

// SCRAM with channel binding ties a login to the certificate that the client sees, so that
// it fails where that is the proxy's and not the server's. What does not need the proxy
// passes untouched. Where it does and the role's verifier can be looked up, the proxy stands in
// the middle: towards the client it is the server, bound to its own certificate, and what the
// client's proof taught it, the ClientKey, it uses at once to prove the same to the server.
//
// Salt, iterations and refusals are always the server's own. So a role that does not exist
// looks as it does without the proxy, and a wrong password is refused, and
// logged, by the server.

// Codes of Authentication messages.
const (
	authOK           = 0
	authSASL         = 10
	authSASLContinue = 11
	authSASLFinal    = 12
)

// maxSASL is the server's limit on the length field of a SASL message.
const maxSASL = 1024

// A channels says what SCRAM can be bound to on the two legs of a session.
type channels struct {
	encrypted bool // the client's leg is TLS
	same      bool // and shows the client the server's own certificate
	// The channel binding data of the legs, nil where there is none.
	client, server []byte
	verifiers      bool // verifiers can be looked up
}

// channelsOf takes the certificates (DER) of the legs' server sides: the one that the proxy
// showed to the client and the server's own, nil on a leg without TLS.
func channelsOf(shown, server []byte, verifiers bool) channels {
	c := channels{encrypted: shown != nil, verifiers: verifiers}
	if shown != nil && server != nil {
		c.same = bytes.Equal(shown, server)
		c.client, c.server = endPoint(shown), endPoint(server)
	}
	return c
}

func endPoint(der []byte) []byte {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil
	}
	return scram.EndPoint(cert)
}

// A saslState is how far an exchange is that the proxy looks at.
type saslState uint8

const (
	unwatched  saslState = iota // messages pass
	offered                     // the client chooses a mechanism
	greeted                     // its first message was replaced; the server's challenge is awaited
	challenged                  // the client's proof is awaited
	proved                      // the server's signature is awaited
	doomed                      // nothing but the server's refusal can follow
	vouched                     // both have proved themselves
)

// A middle is the proxy in the middle of an exchange.
type middle struct {
	server     scram.Server // towards the client
	client     scram.Client // towards the server
	salt       string       // of the server's challenge, with its iterations
	iterations int
	looked     bool            // the verifier was looked up
	verifier   *scram.Verifier // nil where there is none that fits
}

// authentication decides on an Authentication message of the server's.
func (c *core) authentication(msg, body []byte) (step, bool) {
	if len(body) < 4 {
		return step{}, true
	}
	code := binary.BigEndian.Uint32(body)
	switch {
	case code == authOK && (c.sasl <= offered || c.sasl == vouched):
		c.authOK, c.asked, c.channels = true, false, channels{}
		return step{}, true
	case code == authSASL && c.sasl == unwatched:
		c.asked = true
		return c.offer(msg, body[4:])
	case code == authSASLContinue && c.sasl == greeted:
		return c.challenge(msg, string(body[4:]))
	case code == authSASLFinal && c.sasl == proved:
		return c.signed(msg, string(body[4:]))
	case c.sasl <= offered:
		c.asked = code != authSASLFinal
		return step{}, true
	}
	// Invariant 5: no login but one that the server proved to be part of.
	c.end(report{severity: "FATAL", code: "08P01", message: "the server broke the SCRAM exchange"})
	return step{drop: len(msg), next: again}, false
}

// offer decides on the server's list of mechanisms.
func (c *core) offer(msg, list []byte) (step, bool) {
	var names []string
	plus := false
	for {
		name, rest, ok := cut(list)
		if !ok || len(name) == 0 {
			break
		}
		if list = rest; string(name) == scram.Plus {
			plus = true
		} else {
			names = append(names, string(name))
		}
	}
	if !plus || c.channels.same {
		return step{}, true
	}
	if c.channels.encrypted {
		c.sasl = offered
		if c.channels.client != nil {
			return step{}, true
		}
	}
	// A client that has no TLS, or cannot bind to what it has, must not be offered it.
	b := binary.BigEndian.AppendUint32(nil, authSASL)
	for _, name := range names {
		b = append(append(b, name...), 0)
	}
	return step{drop: len(msg), write: appendBody(nil, 'R', append(b, 0)), next: again}, false
}

// answered decides on a message that answers an Authentication message. It reports true
// when the message passes as it is.
func (c *core) answered(msg []byte, size int) (step, bool) {
	if c.sasl == greeted || c.sasl == proved {
		return step{next: wait}, false // it answers what the server has not asked yet
	}
	if c.sasl != offered && c.sasl != challenged {
		return step{}, true
	}
	if size > 1+maxSASL {
		return c.asIs() // the server refuses it
	}
	if len(msg) < size {
		return step{next: read, need: size}, false
	}
	if c.sasl == offered {
		return c.chosen(msg[5:size], size)
	}
	return c.proof(string(msg[5:size]), size)
}

// asIs lets the client's message pass, because it needs no help or because it is beyond help.
func (c *core) asIs() (step, bool) {
	if c.sasl == challenged {
		c.sasl = doomed
	} else {
		c.sasl = unwatched
	}
	return step{}, true
}

// chosen decides on the mechanism that the client chose, and begins the exchange with the
// server in its place.
func (c *core) chosen(body []byte, size int) (step, bool) {
	mechanism, rest, ok := cut(body)
	if !ok || len(rest) < 5 || int(binary.BigEndian.Uint32(rest)) != len(rest)-4 {
		return c.asIs()
	}
	first := string(rest[4:])
	switch {
	case string(mechanism) == scram.Plus && c.channels.client != nil:
	case string(mechanism) == scram.Plain && c.channels.client == nil && first[0] == 'y':
		// It could bind, and was not offered to: the server would take that for an attack.
	default:
		return c.asIs()
	}
	if !c.channels.verifiers {
		c.end(unboundable)
		return step{drop: size, next: stop}, false
	}
	m := &middle{}
	if m.server.First(first, c.channels.client) != nil {
		return c.asIs()
	}
	c.middle, c.sasl, c.asked = m, greeted, false
	own := m.client.First(c.newNonce(), c.channels.server)
	name := scram.Plain
	if c.channels.server != nil {
		name = scram.Plus
	}
	b := append([]byte(name), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(own)))
	return c.replace(size, appendBody(nil, 'p', append(b, own...))), false
}

var unboundable = report{severity: "FATAL", code: "28000",
	message: "SCRAM channel binding cannot pass through this proxy",
	detail:  "The client binds its login to the proxy's certificate, the server to its own, and the proxy may not look up SCRAM verifiers.",
	hint: "Let the proxy show the server's own certificate, or let it look up verifiers (fenceproxy install --scram), " +
		"or connect to the server without TLS (a Unix socket), or let the client connect with channel_binding=disable."}

// challenge hands the server's salt and iterations on, once the verifier was looked up.
func (c *core) challenge(msg []byte, text string) (step, bool) {
	m := c.middle
	if !m.looked {
		var err error
		if m.salt, m.iterations, err = m.client.Challenge(text); err != nil {
			c.end(report{severity: "FATAL", code: "08P01", message: "the server broke the SCRAM exchange"})
			return step{drop: len(msg), next: again}, false
		}
		return step{next: verify}, false
	}
	c.sasl, c.asked = challenged, true
	return step{drop: len(msg), write: appendAuth(nil, authSASLContinue, m.server.Challenge(c.newNonce(), m.salt, m.iterations)), next: again}, false
}

// verified answers step verify: v is the role's verifier, or nil where it has none. It reports
// whether the server has the same.
func (c *core) verified(v *scram.Verifier) bool {
	m := c.middle
	m.looked = true
	if v != nil && v.Salt == m.salt && v.Iterations == m.iterations {
		m.verifier = v
	}
	return m.verifier != nil
}

// proof checks the client's proof and makes one for the server of it.
func (c *core) proof(text string, size int) (step, bool) {
	m := c.middle
	// Without a verifier all goes as with one that does not match.
	stored := scram.Key(sha256.Sum256([]byte(c.newNonce())))
	if m.verifier != nil {
		stored = m.verifier.StoredKey
	}
	key, err := m.server.Final(text, &stored)
	switch {
	case err == nil && m.verifier != nil:
		c.sasl = proved
	case errors.Is(err, scram.ErrProof):
		key = sha256.Sum256([]byte(c.newNonce()))
		c.sasl = doomed
	default:
		// Whatever else is wrong, the server finds wrong too: it never heard of this nonce.
		return c.asIs()
	}
	own := m.client.Final(&key)
	clear(key[:])
	return c.replace(size, appendBody(nil, 'p', []byte(own))), false
}

// signed checks that the server knows the verifier, and tells the client so.
func (c *core) signed(msg []byte, text string) (step, bool) {
	m := c.middle
	if err := m.client.Check(text, &m.verifier.ServerKey); err != nil {
		c.end(report{severity: "FATAL", code: "28000", message: err.Error(), detail: "What answers as the server does not know the role's verifier."})
		return step{drop: len(msg), next: again}, false
	}
	s := step{drop: len(msg), write: appendAuth(nil, authSASLFinal, m.server.Signature(&m.verifier.ServerKey)), next: again}
	c.sasl = vouched
	c.forget()
	return s, false
}

// forget forgets what an exchange left.
func (c *core) forget() {
	if c.middle != nil && c.middle.verifier != nil {
		c.middle.verifier.Clear()
	}
	c.middle = nil
}

// appendBody appends a message of any body.
func appendBody(b []byte, typ byte, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, typ), uint32(4+len(body)))
	return append(b, body...)
}

func appendAuth(b []byte, code uint32, data string) []byte {
	return appendBody(b, 'R', append(binary.BigEndian.AppendUint32(nil, code), data...))
}
