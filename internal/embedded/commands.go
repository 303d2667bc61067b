package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// own runs the commands that miniredis lacks or would get wrong, and reports whether
// this was one. They touch no data, and do not hold client.running: two connections
// may kill each other.
func (s *Server) own(c *client, args []string) bool {
	name, sub := strings.ToUpper(args[0]), ""
	if len(args) > 1 {
		sub = strings.ToUpper(args[1])
	}
	// miniredis runs plain Lua only: the line that gives a script's flags becomes a
	// comment.
	if (name == "EVAL" || name == "EVAL_RO") && len(args) > 1 && strings.HasPrefix(args[1], "#!") {
		args[1] = "--" + args[1][2:]
	}
	var run func()
	switch name {
	case "FLUSHALL", "FLUSHDB", "SWAPDB":
		run = func() {
			c.peer.WriteError("ERR the embedded server refuses " + name + ": it would not fire a WATCH")
		}
	case "SELECT":
		if sub != "0" {
			run = func() { c.peer.WriteError("ERR the embedded server has database 0 only") }
		}
	case "AUTH":
		// As Redis where the default user needs no password.
		if len(args) == 3 && args[1] == "default" {
			run = c.peer.WriteOK
		}
	case "COMMAND":
		run = func() { s.command(c.peer, sub, args) }
	case "INFO":
		run = func() { s.info(c.peer) }
	case "HELLO":
		// miniredis wants a version. Without one, Redis only says what it is.
		if len(args) == 1 {
			run = func() { hello(c) }
		}
	case "ROLE":
		run = func() { c.peer.WriteRaw("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n") }
	case "WAIT":
		run = func() { c.peer.WriteInt(0) }
	case "CONFIG":
		if sub == "GET" {
			run = func() { configGet(c.peer, args[2:]) }
		}
	case "CLIENT":
		switch sub {
		case "ID":
			run = func() { c.peer.WriteInt(int(c.id)) }
		case "LIST", "INFO":
			run = func() { s.list(c, sub == "INFO") }
		case "KILL":
			run = func() { s.killCommand(c, args[2:]) }
		case "SETINFO", "NO-EVICT", "NO-TOUCH":
			run = c.peer.WriteOK
		}
	}
	if run == nil {
		return false
	}
	if c.multi {
		c.peer.WriteError("ERR the embedded server does not run " + name + " in a transaction")
		return true
	}
	run()
	return true
}

func hello(c *client) {
	proto := 2
	if c.peer.Resp3 {
		proto = 3
	}
	c.peer.WriteMapLen(7)
	for _, field := range [][2]string{{"server", "redis"}, {"version", "7.0.0"}, {"mode", "standalone"}, {"role", "master"}} {
		c.peer.WriteBulk(field[0])
		c.peer.WriteBulk(field[1])
	}
	c.peer.WriteBulk("proto")
	c.peer.WriteInt(proto)
	c.peer.WriteBulk("id")
	c.peer.WriteInt(int(c.id))
	c.peer.WriteBulk("modules")
	c.peer.WriteLen(0)
}

// list answers CLIENT LIST, or CLIENT INFO where it is only about c itself.
func (s *Server) list(c *client, self bool) {
	var b strings.Builder
	for _, other := range s.all() {
		if self && other != c {
			continue
		}
		age := int(time.Since(other.since).Seconds())
		// A connection's name is set under the server's lock.
		s.m.Lock()
		name := other.peer.ClientName
		s.m.Unlock()
		// In a transaction own refuses to answer: whoever asks for itself is in none. And
		// SELECT of another database is refused.
		fmt.Fprintf(&b, "id=%d addr=%s laddr=%s fd=0 name=%s age=%d idle=0 flags=N db=0 sub=0 psub=0 multi=-1 cmd=NULL user=default resp=2\n",
			other.id, other.conn.RemoteAddr(), other.conn.LocalAddr(), name, age)
	}
	c.peer.WriteBulk(b.String())
}

// all returns the connections, in the order of their ids.
func (s *Server) all() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*client, 0, len(s.clients))
	for _, c := range s.clients {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *client) int { return int(a.id - b.id) })
	return all
}

// killCommand answers CLIENT KILL ID n [ID n ...] and CLIENT KILL ADDR host:port.
func (s *Server) killCommand(c *client, args []string) {
	var ids []int64
	addr, skipMe := "", true
	if len(args) == 0 || len(args)%2 != 0 {
		c.peer.WriteError("ERR the embedded server knows CLIENT KILL ID, ADDR and SKIPME")
		return
	}
	for i := 0; i < len(args); i += 2 {
		switch value := args[i+1]; strings.ToUpper(args[i]) {
		case "ID":
			id, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				c.peer.WriteError("ERR client-id should be greater than 0")
				return
			}
			ids = append(ids, id)
		case "ADDR":
			addr = value
		case "SKIPME":
			skipMe = !strings.EqualFold(value, "no")
		default:
			c.peer.WriteError("ERR the embedded server knows CLIENT KILL ID, ADDR and SKIPME")
			return
		}
	}
	killed := 0
	for _, other := range s.all() {
		if len(ids) > 0 && !slices.Contains(ids, other.id) || addr != "" && other.conn.RemoteAddr().String() != addr {
			continue
		}
		if other == c {
			if !skipMe {
				c.killed.Store(true) // ends after this answer
				killed++
			}
			continue
		}
		s.kill(other)
		killed++
	}
	c.peer.WriteInt(killed)
}

func (s *Server) info(p *server.Peer) {
	p.WriteBulk("# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\nserver_name:embedded\r\n" +
		"# Clients\r\nconnected_clients:" + strconv.Itoa(len(s.all())) + "\r\n" +
		"# Persistence\r\nloading:0\r\naof_enabled:0\r\n" +
		"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n" +
		"# Cluster\r\ncluster_enabled:0\r\n")
}

func configGet(p *server.Peer, names []string) {
	var found []string
	for _, n := range names {
		switch strings.ToLower(n) {
		case "maxmemory-policy":
			found = append(found, n, "noeviction")
		case "maxmemory":
			found = append(found, n, "0")
		case "appendonly":
			found = append(found, n, "no")
		}
	}
	p.WriteMapLen(len(found) / 2)
	for _, f := range found {
		p.WriteBulk(f)
	}
}

// A commandTable is miniredis's answer to COMMAND, whole and by command.
type commandTable struct {
	all    string
	byName map[string]string
}

// command answers COMMAND, COMMAND COUNT and COMMAND INFO.
func (s *Server) command(p *server.Peer, sub string, args []string) {
	switch sub {
	case "":
		p.WriteRaw(s.table.all)
	case "COUNT":
		p.WriteInt(len(s.table.byName))
	case "INFO":
		p.WriteLen(len(args) - 2)
		for _, name := range args[2:] {
			if entry, ok := s.table.byName[strings.ToLower(name)]; ok {
				p.WriteRaw(entry)
			} else {
				p.WriteRaw("*-1\r\n")
			}
		}
	default:
		p.WriteError("ERR the embedded server knows COMMAND, COMMAND COUNT and COMMAND INFO")
	}
}

// readCommandTable asks miniredis for its commands and cuts the answer up.
func readCommandTable(m *miniredis.Miniredis) (commandTable, error) {
	var out bytes.Buffer
	p := server.NewPeer(bufio.NewWriter(&out))
	m.Server().Dispatch(p, []string{"COMMAND"})
	p.Flush()
	t := commandTable{all: out.String(), byName: map[string]string{}}
	r := bufio.NewReader(strings.NewReader(t.all))
	head, err := r.ReadString('\n')
	if err != nil {
		return t, fmt.Errorf("its command table: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(head[1:]))
	if err != nil {
		return t, fmt.Errorf("its command table: %w", err)
	}
	for range n {
		var entry strings.Builder
		name, err := copyReply(&entry, r, 0)
		if err != nil {
			return t, fmt.Errorf("its command table: %w", err)
		}
		t.byName[strings.ToLower(name)] = entry.String()
	}
	return t, nil
}

var errReply = errors.New("malformed reply")

// copyReply copies one reply from r to w and returns the first text in it.
func copyReply(w *strings.Builder, r *bufio.Reader, depth int) (first string, err error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 || depth > 8 {
		return "", errors.Join(errReply, err)
	}
	w.WriteString(line)
	text := strings.TrimSpace(line[1:])
	n, _ := strconv.Atoi(text)
	switch line[0] {
	case '$':
		b := make([]byte, max(0, n)+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return "", fmt.Errorf("%w: %w", errReply, err)
		}
		w.Write(b)
		return string(b[:n]), nil
	case '*':
		for range n {
			s, err := copyReply(w, r, depth+1)
			if err != nil {
				return "", err
			}
			if first == "" {
				first = s
			}
		}
		return first, nil
	}
	return text, nil
}
