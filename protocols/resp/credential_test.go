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

// What is wrong with a credential is said, but for what may be a token.
func TestCredentialsSayWhatIsWrong(t *testing.T) {
	const token = "0123456789abcdefghij"
	c := newCore(coreConfig{election: "orders", serves: func(string) bool { return true }})
	for name, want := range map[string]string{
		";election=orders;token=":         "the token is empty",
		";election=orders":                `it has no ";token=..."`,
		";election=orders;token=short":    "the token must be 16 to 128 characters",
		";election=orders;tokn=" + token:  `and nothing else (found ";tokn=")`,
		";elektion=orders;token=" + token: `and nothing else (found ";elektion=")`,
		";ELECTION=orders;token=" + token: `and nothing else (found ";ELECTION=")`,
		"app;" + token:                    "and nothing else",
		"app;" + token + "=":              "and nothing else",
		"app;t0ken=" + token:              "and nothing else",
	} {
		_, cred := c.splitUser(name)
		if cred == nil || cred.refusal == nil {
			t.Fatalf("%q: taken", name)
		}
		said := c.refusalText(cred.refusal)
		if !strings.Contains(said, want) || strings.Contains(said, token) || strings.HasSuffix(want, "else") && strings.Contains(said, "found") {
			t.Errorf("%q: %s", name, said)
		}
	}
	if cred := c.credential("orders", ""); cred.refusal == nil || cred.refusal.Detail != "the token is empty" {
		t.Errorf("%+v", cred)
	}
}
