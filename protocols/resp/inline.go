package resp

// splitInline splits the line of an inline command into its arguments exactly as the
// servers do (sdssplitargs), and appends them to b as a command of bulks. It reports how
// many there were; false means unbalanced quotes. A NUL ends the line there and here.
//
// The command goes upstream in that form only: what was judged is what is run.
func splitInline(b, line []byte) (out []byte, argc int, ok bool) {
	at := func(i int) byte {
		if i < len(line) {
			return line[i]
		}
		return 0
	}
	// Arguments are collected first: their number comes before them on the wire.
	var body, arg []byte
	p := 0
	for {
		for at(p) != 0 && isSpace(at(p)) {
			p++
		}
		if at(p) == 0 {
			b = appendHead(b, '*', argc)
			return append(b, body...), argc, true
		}
		if arg, p, ok = splitOne(arg[:0], at, p); !ok {
			return b, 0, false
		}
		body = appendBulk(body, arg)
		argc++
	}
}

// splitOne reads one argument from position p and returns the position after it.
func splitOne(arg []byte, at func(int) byte, p int) ([]byte, int, bool) {
	const plain = 0
	quote := byte(plain)
	for {
		c := at(p)
		switch {
		case quote == plain:
			switch c {
			case ' ', '\n', '\r', '\t':
				return arg, p + 1, true
			case 0:
				return arg, p, true
			case '"', '\'':
				quote = c
			default:
				arg = append(arg, c)
			}
		case c == 0:
			return arg, p, false
		case quote == '"' && c == '\\' && at(p+1) == 'x' && isHex(at(p+2)) && isHex(at(p+3)):
			arg = append(arg, unhex(at(p+2))<<4|unhex(at(p+3)))
			p += 3
		case quote == '"' && c == '\\' && at(p+1) != 0:
			p++
			arg = append(arg, unescape(at(p)))
		case quote == '\'' && c == '\\' && at(p+1) == '\'':
			p++
			arg = append(arg, '\'')
		case c == quote:
			// A closing quote is followed by a space or by nothing.
			if n := at(p + 1); n != 0 && !isSpace(n) {
				return arg, p, false
			}
			return arg, p + 1, true
		default:
			arg = append(arg, c)
		}
		p++
	}
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

// SplitLine splits a command as it is typed into its words, as the servers split a line:
// quotes keep spaces. It reports false for quotes that do not end.
func SplitLine(line string) (words [][]byte, ok bool) {
	raw, argc, ok := splitInline(nil, []byte(line))
	if !ok {
		return nil, false
	}
	_, pos, _ := scanHead(raw, 0, '*')
	for range argc {
		size, at, _ := scanHead(raw, pos, '$')
		words = append(words, raw[at:at+int(size)])
		pos = at + int(size) + 2
	}
	return words, true
}
