package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pprofile "github.com/google/pprof/profile"
)

func TestProfile(t *testing.T) {
	ask := func(ctx context.Context, query string) *httptest.ResponseRecorder {
		res := httptest.NewRecorder()
		Profile().ServeHTTP(res, httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/pprof/profile"+query, nil))
		return res
	}
	for _, bad := range []string{"0", "61", "-1", "1.5", "x"} {
		if res := ask(t.Context(), "?seconds="+bad); res.Code != http.StatusBadRequest || !strings.Contains(res.Body.String(), "bad-seconds") {
			t.Errorf("%s seconds: %d %s", bad, res.Code, res.Body)
		}
	}
	// One whose caller has gone ends at once.
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, res := range []*httptest.ResponseRecorder{ask(gone, ""), ask(t.Context(), "?seconds=1")} {
		if p, err := pprofile.Parse(res.Body); err != nil || res.Code != http.StatusOK || len(p.SampleType) != 2 {
			t.Errorf("%d, %v", res.Code, err)
		}
	}
}

// A profile is for those who may use the API.
func TestProfileIsOfTheAPI(t *testing.T) {
	const token = "0123456789abcdef0123"
	l := listen(t, "tcp", "127.0.0.1:0")
	s := New(Config{Token: token})
	s.API(ProfilePattern, Profile())
	begin(t, s, l)
	c := client(t, &http.Transport{})
	url := "http://" + l.Addr().String() + "/debug/pprof/profile?seconds=99"
	if status, code := ask(t, c, http.MethodGet, url, ""); status != 401 || code != "unauthenticated" {
		t.Errorf("without the token: %d %s", status, code)
	}
	if status, code := ask(t, c, http.MethodGet, url, "", "Authorization", "Bearer "+token); status != 400 || code != "bad-seconds" {
		t.Errorf("with it: %d %s", status, code)
	}
}
