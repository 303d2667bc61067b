package resp

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard"
)

// Whatever is mistyped in a credential, its token is not sent to the server as a name.
func TestMistypedCredentialsStayHere(t *testing.T) {
	const token = "0123456789abcdefghij"
	c := newCore(coreConfig{election: "orders", serves: func(string) bool { return true }})
	for _, name := range []string{
		";token=" + token, "app;token=" + token, "token=" + token, "app;election=orders;token=" + token,
	} {
		user, cred := c.splitUser(name)
		if strings.Contains(user, token) || cred == nil || cred.refusal != nil {
			t.Errorf("%q: user %q, %+v", name, user, cred)
		}
	}
	for _, name := range []string{
		";Token=" + token, ";tokn=" + token, "; token=" + token, "default;token:" + token, "default token=" + token,
		"Token=" + token, "app;" + token, "app token:" + token, ";token=" + token + ";token=" + token, "appTOKEN=" + token,
	} {
		user, cred := c.splitUser(name)
		if strings.Contains(user, token) || cred == nil || cred.refusal == nil || cred.refusal.Reason != guard.InvalidCredential {
			t.Errorf("%q: user %q, %+v", name, user, cred)
		}
	}
	for _, name := range []string{"app", "default", "token-service", "election", ""} {
		if user, cred := c.splitUser(name); user != name || cred != nil {
			t.Errorf("%q: user %q, %+v", name, user, cred)
		}
	}
}
