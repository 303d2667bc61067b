package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// An Error is an answer that refuses a request: {"error": {"code": …, "message": …}}. It never
// holds a token.
type Error struct {
	// Status is the HTTP status; zero means 400.
	Status int `json:"-"`
	// Code is for programs, and stable; Message and Hint are for people.
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Fields say more to programs, for instance owner and number.
	Fields map[string]any `json:"details,omitempty"`
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// WriteError answers with an error.
func WriteError(w http.ResponseWriter, e *Error) {
	status := e.Status
	if status == 0 {
		status = http.StatusBadRequest
	}
	WriteJSON(w, status, struct {
		Error *Error `json:"error"`
	}{e})
}

// WriteJSON answers with a value as JSON, on one line.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer could not be written as JSON"}}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// ReadJSON reads the body of a request, of MaxBody bytes at most, into v: one value, with no
// field that v does not have. Without a body v stays as it is. Where that fails it answers, and
// reports false.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	e := readJSON(w, r, v)
	if e != nil {
		WriteError(w, e)
	}
	return e == nil
}

func readJSON(w http.ResponseWriter, r *http.Request, v any) *Error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	} else {
		// Or net/http would read on, for the next request, before it sends the answer.
		w.Header().Set("Connection", "close")
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too-large", Message: "the body is longer than is taken here"}
	case err != nil:
		return &Error{Status: http.StatusRequestTimeout, Code: "incomplete", Message: "the body did not come whole, or not in time"}
	case len(bytes.TrimSpace(body)) == 0:
		return nil
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported-media-type", Message: "the body must be JSON",
			Hint: "Send the header Content-Type: application/json."}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &Error{Code: "bad-json", Message: "the body holds more than one JSON value"}
	}
	if twice(body) {
		return &Error{Code: "bad-json", Message: "the body has a field twice"}
	}
	return nil
}

// twice reports whether an object, which is well-formed, has a field twice. Names are compared
// as they are matched with fields.
func twice(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	var names []string
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return false
		}
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			return true
		}
		names = append(names, name)
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return false
		}
	}
	return false
}

// kindOf is a type in words.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Pointer:
		return kindOf(t.Elem())
	}
	return "of another type"
}

// badJSON says what is wrong without a value of the body: it may hold a token.
func badJSON(err error) *Error {
	e := &Error{Code: "bad-json", Message: "the body is not the JSON that is taken here"}
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typ) && typ.Field != "":
		e.Message = "the field " + typ.Field + " must be " + kindOf(typ.Type)
	case errors.As(err, &syntax):
		e.Message = "the body is not JSON"
	default:
		e.Hint = "It may hold a field that is not known; the documentation lists them."
	}
	return e
}

// Stream lets an answer go on without an end: the write deadline is set anew before each
// Send, and the read deadline taken off.
type Stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// NewStream begins an answer of JSON lines.
func NewStream(w http.ResponseWriter) *Stream {
	s := &Stream{w, http.NewResponseController(w)}
	_ = s.c.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/x-ndjson")
	return s
}

// Send writes v as a line, at once. An error means that the caller is gone, or does not read.
func (s *Stream) Send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = s.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return s.c.Flush()
}
