package electionapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/admin"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A Code says why a request was refused or failed, for programs. Codes are stable: none ever
// changes its meaning.
type Code string

// The codes of both faces.
const (
	InvalidElection   Code = "invalid-election"
	InvalidToken      Code = "invalid-token"
	InvalidOwner      Code = "invalid-owner"
	InvalidTTL        Code = "invalid-ttl"
	InvalidFencing    Code = "invalid-fencing"
	InvalidArgument   Code = "invalid-argument"
	UnsupportedOption Code = "unsupported-option"
	NumbersExhausted  Code = "numbers-exhausted"
	Unavailable       Code = "unavailable"
	Corrupt           Code = "corrupt"
	TooManyWatchers   Code = "too-many-watchers"
	NotServed         Code = "not-served"
	Unauthenticated   Code = "unauthenticated"
	Forbidden         Code = "forbidden"
)

// Word is the code as the first word of an error in the protocol of Redis: INVALIDELECTION.
func (c Code) Word() string { return resp.ErrorWord(string(c)) }

// A Meaning is what a code says.
type Meaning struct {
	Code Code
	// Status is that of HTTP; zero where HTTP has other ways to refuse the same.
	Status int
	// Message and Hint are for people. Neither holds anything of a caller's.
	Message, Hint string
}

// Meanings are all codes, in the order of the documentation.
var Meanings = []Meaning{
	{InvalidElection, http.StatusBadRequest, "the election id must be 1 to 128 characters of A-Z a-z 0-9 . _ - : /, the first a letter or a digit", "In a URL, percent-encode it: / is %2F."},
	{InvalidToken, http.StatusBadRequest, "the token must be 16 to 128 characters of A-Z a-z 0-9 - _ . ~", "Pass the token exactly as acquire returned it."},
	{InvalidOwner, http.StatusBadRequest, "the owner must be 1 to 128 printable ASCII characters without spaces", ""},
	{InvalidTTL, http.StatusBadRequest, "a time is out of range: a TTL is 100 to 86400000 milliseconds, a hold-off 0 to 86400000", ""},
	{InvalidFencing, http.StatusBadRequest, "the floor of the fencing number must not be negative", ""},
	{InvalidArgument, http.StatusBadRequest, "an argument is missing, unknown, given twice or no number", "GET /v1/openapi.json describes the API."},
	{UnsupportedOption, http.StatusUnprocessableEntity, "the election backend cannot enforce an option, so nothing was done", "A hold-off needs redis, valkey or memory."},
	{NumbersExhausted, http.StatusConflict, "the fencing numbers of this election cannot rise any further", "Use another election id."},
	{Unavailable, http.StatusServiceUnavailable, "the election backend did not answer: nobody knows whether it was done", "Ask again with the same token."},
	{Corrupt, http.StatusBadGateway, "what the election backend holds for this election cannot be understood", "Something else writes to its record; the proxy's log says what."},
	{TooManyWatchers, http.StatusTooManyRequests, "as many requests as are allowed wait for a change already", "Wait a while, or ask for the status instead."},
	{NotServed, 0, "this listener does not serve the election", "Name it in the listener's elections."},
	{Unauthenticated, 0, "this needs authentication", "Send ELECTION AUTH <token> first, with the token of election_commands."},
	{Forbidden, 0, "clients at this address may not", "Configure election_commands: allow, or a token for ELECTION AUTH."},
}

// A Problem is why a request was refused or failed. It holds nothing of the caller's.
type Problem struct {
	Meaning
	retryAfter bool
}

func problem(c Code) *Problem {
	for _, m := range Meanings {
		if m.Code == c {
			return &Problem{Meaning: m, retryAfter: c == Unavailable || c == TooManyWatchers}
		}
	}
	return &Problem{Meaning: Meaning{Code: c, Status: http.StatusInternalServerError, Message: "it failed"}}
}

// invalid is an argument that is not taken; the message names it, and holds nothing of the
// caller's.
func invalid(message string) *Problem {
	p := problem(InvalidArgument)
	p.Message = message
	return p
}

// problem sorts an error of the backend's. Its text is for the log.
func (s *Service) problem(op election.Operation, err error) *Problem {
	for _, k := range []struct {
		is error
		c  Code
	}{
		{election.ErrInvalidID, InvalidElection},
		{election.ErrInvalidToken, InvalidToken},
		{election.ErrInvalidOwner, InvalidOwner},
		{election.ErrInvalidTTL, InvalidTTL},
		{election.ErrInvalidFencing, InvalidFencing},
		{election.ErrUnsupportedOption, UnsupportedOption},
		{election.ErrNumbersExhausted, NumbersExhausted},
	} {
		if errors.Is(err, k.is) {
			return problem(k.c)
		}
	}
	p := problem(Unavailable)
	if errors.Is(err, election.ErrCorrupt) {
		p = problem(Corrupt)
	}
	if !errors.Is(err, context.Canceled) && s.failed.tell() { // a caller that left is no news
		s.c.Log.Warn("an election request failed", "request", string(op), "code", string(p.Code), "error", err)
	}
	return p
}

// write answers an HTTP request with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	if p.retryAfter {
		w.Header().Set("Retry-After", "1")
	}
	if p.Code == TooManyWatchers {
		w.Header().Set("Connection", "close") // its place is for others
	}
	admin.WriteError(w, &admin.Error{Status: p.Status, Code: string(p.Code), Message: p.Message, Hint: p.Hint})
}
