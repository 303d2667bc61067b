package resp

import "bytes"

// maxList bounds the reply to CLUSTER SLOTS and its kin.
const maxList = 4 << 20

// A nodeList is a reply that names nodes and their addresses.
type nodeList uint8

const (
	noList       nodeList = iota
	listSlots             // CLUSTER SLOTS
	listShards            // CLUSTER SHARDS
	listNodes             // CLUSTER NODES: a text
	listReplicas          // CLUSTER REPLICAS and SLAVES: texts
)

var lists = map[string]nodeList{
	"cluster|slots": listSlots, "cluster|shards": listShards, "cluster|nodes": listNodes,
	"cluster|replicas": listReplicas, "cluster|slaves": listReplicas,
}

// list lets the server answer CLUSTER SLOTS and its kin, and puts the proxy's addresses
// into the answer. It is known by its place: every earlier reply has come.
func (c *core) list(cmd *command, raw []byte) bool {
	conn := &c.conn
	switch {
	case c.cfg.cluster == nil:
		return false
	case conn.multi, conn.replyOff, conn.skipNext, conn.monitor:
		c.substitute(codeList, cmd)
	default:
		c.flow = flow{list: lists[cmd.Name], command: bytes.Clone(raw)}
		c.flow.step, c.flow.sentinel = stepSettle, c.sentinel()
	}
	return true
}

func (c *core) askList() {
	c.flow.step, c.flow.owed = stepList, 1
	c.up = append(c.up, c.flow.command...)
}

// listed takes the server's answer.
//
// INVARIANT: what names nodes and is not understood does not go on to the client.
func (c *core) listed(reply []byte) {
	f := &c.flow
	if isError(reply) {
		c.replied()
		c.down = append(c.down, c.redirection(reply)...)
		c.flow = flow{}
		return
	}
	v, rest, ok := parseValue(reply)
	r := relisting{nodes: c.cfg.cluster}
	switch {
	case !ok || len(rest) > 0 || !r.relist(f.list, &v):
		c.end(errorLine(wordDown, "the server's list of the cluster's nodes is not understood or too long; the connection is closed."))
	case r.unknown && !f.refreshed:
		// The proxy looks anew at the cluster, and the server is then asked again.
		f.step = stepRefresh
		c.ask = question{kind: askTopology}
	default:
		c.replied()
		c.down = v.append(c.down)
		c.flow = flow{}
	}
}

// refreshed takes in that the proxy has looked at the cluster anew.
func (c *core) refreshed() {
	c.ask = question{}
	if c.flow.step != stepRefresh || c.ended {
		return
	}
	c.flow.refreshed = true
	c.askList()
}

// A relisting puts the proxy's addresses into a list. Nodes that the proxy does not know
// are left out.
type relisting struct {
	nodes   clusterMap
	unknown bool // some are left out
}

func (r *relisting) to(id []byte) (address, bool) {
	to, known := r.nodes.node(id)
	r.unknown = r.unknown || !known && to.unserved == "" // nothing is learned by looking anew
	return to, known
}

// relist reports whether the list is understood.
func (r *relisting) relist(l nodeList, v *value) bool {
	switch l {
	case listSlots:
		return v.kind == '*' && r.each(v, r.slotRange)
	case listShards:
		return v.kind == '*' && r.each(v, r.shard)
	case listReplicas:
		return v.kind == '*' && r.each(v, r.line)
	case listNodes:
		return (v.kind == '$' || v.kind == '=') && r.lines(v)
	}
	return false
}

// lines changes the lines of a text; a verbatim one begins with its type.
func (r *relisting) lines(v *value) bool {
	text, out := v.text, make([]byte, 0, len(v.text))
	if v.kind == '=' {
		text = bytes.TrimPrefix(text, []byte("txt:"))
		out = append(out, v.text[:len(v.text)-len(text)]...)
	}
	for line := range bytes.Lines(text) {
		bare := bytes.TrimSuffix(line, []byte{'\n'})
		one := value{kind: '$', text: bare}
		keep, ok := r.line(&one)
		if !ok {
			return false
		}
		if keep {
			out = append(append(out, one.text...), line[len(bare):]...)
		}
	}
	v.text = out
	return true
}

// each changes the items of v, or drops them.
func (r *relisting) each(v *value, change func(*value) (keep, ok bool)) bool {
	kept := v.items[:0]
	for i := range v.items {
		keep, ok := change(&v.items[i])
		if !ok {
			return false
		}
		if keep {
			kept = append(kept, v.items[i])
		}
	}
	v.items = kept
	return true
}

// slotRange changes one element of CLUSTER SLOTS: two numbers, then nodes, the primary first.
func (r *relisting) slotRange(v *value) (keep, ok bool) {
	if v.kind != '*' || len(v.items) < 3 {
		return false, false
	}
	nodes := value{items: v.items[2:]}
	primary := string(nodes.items[0].at(2))
	if !r.each(&nodes, func(n *value) (bool, bool) {
		if n.kind != '*' || len(n.items) < 3 {
			return false, false
		}
		to, known := r.to(n.items[2].text)
		if !known {
			return false, true
		}
		n.items[0].setText(to.host)
		n.items[1].setNumber(to.port)
		for i := 3; i < len(n.items); i++ {
			n.items[i].rename(to)
		}
		return true, true
	}) {
		return false, false
	}
	v.items = append(v.items[:2], nodes.items...)
	// Without its primary the range is not told: the next in line would be taken for it.
	return len(nodes.items) > 0 && string(nodes.items[0].at(2)) == primary, true
}

// at is the text of item i, where there is one.
func (v *value) at(i int) []byte {
	if i >= len(v.items) {
		return nil
	}
	return v.items[i].text
}

// shard changes one element of CLUSTER SHARDS.
func (r *relisting) shard(v *value) (keep, ok bool) {
	nodes := v.field("nodes")
	if nodes == nil {
		return false, false
	}
	return true, r.each(nodes, func(n *value) (bool, bool) {
		id := n.field("id")
		if id == nil {
			return false, false
		}
		to, known := r.to(id.text)
		if known {
			n.rename(to)
		}
		return known, true
	})
}

// rename puts the proxy's address into the pairs that describe a node.
func (v *value) rename(to address) {
	for i := 0; i+1 < len(v.items); i += 2 {
		switch x := &v.items[i+1]; string(v.items[i].text) {
		case "ip", "hostname", "endpoint":
			x.setText(to.host)
		case "port", "tls-port":
			x.setNumber(to.port)
		}
	}
}

// line changes a line of CLUSTER NODES: the id, host:port@bus[,hostname[,more]], the flags,
// and more.
func (r *relisting) line(v *value) (keep, ok bool) {
	id, rest, ok1 := bytes.Cut(v.text, []byte{' '})
	addr, rest, ok2 := bytes.Cut(rest, []byte{' '})
	at, more, named := bytes.Cut(addr, []byte{','})
	bus := bytes.LastIndexByte(at, '@')
	if !ok1 || !ok2 || bus < 0 || v.kind != '$' {
		return false, false
	}
	to, known := r.to(id)
	if !known {
		return false, true
	}
	out := append(append([]byte{}, id...), ' ')
	out = append(append(out, to.String()...), at[bus:]...)
	if named {
		out = append(out, ',')
		name, others := more, []byte(nil)
		if i := bytes.IndexByte(more, ','); i >= 0 {
			name, others = more[:i], more[i:]
		}
		if len(name) > 0 {
			out = append(out, to.host...)
		}
		out = append(out, others...)
	}
	out = append(append(out, ' '), rest...)
	v.text = out
	return true, true
}
