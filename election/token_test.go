package election

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const tokenAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"

// aToken draws a valid token's text.
func aToken() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom([]rune(tokenAlphabet)), 16, MaxTokenLen, -1)
}

// Safety: a token's text reaches nothing that prints, logs or marshals it, at
// whatever depth it lies and whether its field is exported or not.
func TestTokenNeverShows(t *testing.T) {
	type nested struct{ Inner struct{ token Token } }
	rapid.Check(t, func(t *rapid.T) {
		text := aToken().Draw(t, "token")
		tok, err := ParseToken(text)
		if err != nil {
			t.Fatal(err)
		}
		var deep nested
		deep.Inner.token = tok
		values := map[string]any{
			"token":         tok,
			"pointer":       &tok,
			"any":           any(tok),
			"slice":         []Token{tok},
			"map":           map[string]Token{"t": tok},
			"key":           map[Token]int{tok: 1},
			"exported":      struct{ T Token }{tok},
			"unexported":    struct{ t Token }{tok},
			"behind":        struct{ t *Token }{&tok},
			"deep":          deep,
			"deep pointer":  &deep,
			"options":       AcquireOptions{Token: tok},
			"result":        &AcquireResult{Token: tok},
			"error":         fmt.Errorf("doing x with %v %q: %w", tok, tok, ErrUnavailable),
			"channel value": func() any { c := make(chan Token, 1); c <- tok; return <-c }(),
		}
		for name, v := range values {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "% x", "%q", "%+q", "%d", "%o", "%b", "%e", "%c", "%U", "%t", "%T", "%p", "%w", "%!"} {
				hidden(t, name+" "+verb, fmt.Sprintf(verb, v), text)
			}
			hidden(t, name+" Sprint", fmt.Sprint(v), text)
			var out bytes.Buffer
			level := &slog.HandlerOptions{Level: slog.LevelDebug}
			slog.New(slog.NewTextHandler(&out, level)).Info("x", "v", v, slog.Any("w", v), slog.Group("g", "v", v))
			slog.New(slog.NewJSONHandler(&out, level)).Info("x", "v", v, slog.Any("w", v), slog.Group("g", "v", v))
			if b, err := json.Marshal(v); err == nil {
				out.Write(b)
			}
			if b, err := xml.Marshal(v); err == nil {
				out.Write(b)
			}
			hidden(t, name+" marshalled", out.String(), text)
		}
	})
}

// hidden fails when out holds the text, plain or in hexadecimal, or enough of it to
// shorten a search.
func hidden(t *rapid.T, where, out, text string) {
	t.Helper()
	for i := 0; i+12 <= len(text); i++ {
		part := text[i : i+12]
		hexed := hex.EncodeToString([]byte(part))
		if strings.Contains(out, part) || strings.Contains(strings.ToLower(strings.ReplaceAll(out, " ", "")), hexed) {
			t.Fatalf("%s shows the token: %s", where, out)
		}
	}
}

func TestParseToken(t *testing.T) {
	for _, text := range []string{
		"", "short", strings.Repeat("a", 15), strings.Repeat("a", MaxTokenLen+1),
		"sixteen chars ok", "sixteen-chars-o\n", "sixteen-chars-o'", "sixteen-chars-oé", "sixteen-chars;ok", "sixteen-chars\x00ok",
	} {
		tok, err := ParseToken(text)
		if !errors.Is(err, ErrInvalidToken) || !tok.IsZero() {
			t.Errorf("%q: %v", text, err)
		}
		if len(text) > 6 && strings.Contains(err.Error(), text) {
			t.Errorf("the error shows the text: %v", err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := aToken().Draw(t, "token")
		tok, err := ParseToken(text)
		again, _ := ParseToken(strings.Clone(text))
		if err != nil || tok.Reveal() != text || tok.IsZero() || tok != again || tok.Digest() != again.Digest() {
			t.Fatalf("%q: %v", text, err)
		}
		d, err := ParseDigest(tok.Digest().String())
		if err != nil || d != tok.Digest() {
			t.Fatalf("digest %v: %v", d, err)
		}
	})
}

func TestNewToken(t *testing.T) {
	seen := map[Token]bool{}
	for range 1000 {
		tok := NewToken()
		if again, err := ParseToken(tok.Reveal()); err != nil || again != tok || seen[tok] {
			t.Fatalf("%v, seen before: %v", err, seen[tok])
		}
		seen[tok] = true
	}
}

func TestZeroToken(t *testing.T) {
	var z Token
	if !z.IsZero() || z.Reveal() != "" || fmt.Sprint(z) != absent {
		t.Errorf("zero token: %v %q", z.IsZero(), z.Reveal())
	}
	_ = z.Digest() // must not panic
}

func TestParseDigestRefuses(t *testing.T) {
	good := NewToken().Digest().String()
	for _, s := range []string{"", good[1:], good + "0", "g" + good[1:], strings.Repeat("é", 32)} {
		if _, err := ParseDigest(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}
