package admin

import (
	"bytes"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
)

// ProfilePattern is where Profile is served: where Go's own tools look for it.
const ProfilePattern = "GET /debug/pprof/profile"

// How long a profile may be, in seconds.
const (
	defaultProfile = 30
	maxProfile     = 60
)

// Profile answers with a CPU profile of this process over the query's seconds, as go tool
// pprof reads it: functions and times, no data. It belongs behind API.
//
// It is not net/http/pprof's, which shows itself on http.DefaultServeMux as soon as it is
// imported.
func Profile() http.Handler { return http.HandlerFunc(profile) }

func profile(w http.ResponseWriter, r *http.Request) {
	seconds := defaultProfile
	if q := r.URL.Query().Get("seconds"); q != "" {
		var err error
		if seconds, err = strconv.Atoi(q); err != nil || seconds < 1 || seconds > maxProfile {
			WriteError(w, &Error{Code: "bad-seconds", Message: "seconds must be a number from 1 to " + strconv.Itoa(maxProfile)})
			return
		}
	}
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		WriteError(w, &Error{Status: http.StatusConflict, Code: "busy", Message: "another profile is being taken"})
		return
	}
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	select {
	case <-end.C:
	case <-r.Context().Done(): // the caller has gone, or the server stops
	}
	pprof.StopCPUProfile()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(b.Bytes())
}
