package electionapi

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// An answer is what the backend stated: its fields in order, the same on both faces.
type answer []field

// A field holds a string, an int64, a bool or an election.Token. A token is revealed by what
// writes an answer to its caller, and by nothing that prints it.
type field struct {
	name  string
	value any
}

// MarshalJSON writes an object.
func (a answer) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, f := range a {
		b.WriteByte("{,"[min(i, 1)])
		v := f.value
		if t, ok := v.(election.Token); ok {
			v = t.Reveal()
		}
		for j, x := range []any{f.name, v} {
			text, err := json.Marshal(x)
			if err != nil {
				return nil, err
			}
			if j == 1 {
				b.WriteByte(':')
			}
			b.Write(text)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// write writes a map; what is true is 1.
func (a answer) write(r *resp.Reply) {
	r.Map(len(a))
	for _, f := range a {
		r.Text(f.name)
		switch v := f.value.(type) {
		case string:
			r.Text(v)
		case int64:
			r.Number(v)
		case bool:
			n := int64(0)
			if v {
				n = 1
			}
			r.Number(n)
		case election.Token:
			r.Text(v.Reveal())
		default:
			r.Null()
		}
	}
}

// seldom keeps what happens often from filling the log.
type seldom struct {
	mu   sync.Mutex
	told time.Time
}

func (s *seldom) tell() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.told.IsZero() || now.Sub(s.told) >= time.Second {
		s.told = now
		return true
	}
	return false
}
