package policy

import "strings"

// fieldParser reads the parts of a structured field (RFC 8941, section 4.2) from the beginning of rest.
type fieldParser struct{ rest string }

// blanks skips optional white space.
func (p *fieldParser) blanks() { p.rest = strings.TrimLeft(p.rest, " \t") }

func (p *fieldParser) eat(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// while takes the longest beginning that is made of what ok accepts.
func (p *fieldParser) while(ok func(c byte) bool) string {
	i := 0
	for i < len(p.rest) && ok(p.rest[i]) {
		i++
	}
	s := p.rest[:i]
	p.rest = p.rest[i:]
	return s
}

// key reads a parameter's key; "" = there is none.
func (p *fieldParser) key() string {
	if p.rest == "" || p.rest[0] != '*' && !lower(p.rest[0]) {
		return ""
	}
	return p.while(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
}

// token reports whether a token comes next.
func (p *fieldParser) token() bool {
	return p.rest != "" && (p.rest[0] == '*' || lower(p.rest[0]|0x20))
}

// text reads a string or a token.
func (p *fieldParser) text() (string, bool) {
	if p.token() {
		return p.while(func(c byte) bool {
			return lower(c|0x20) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
		}), true
	}
	if !p.eat('"') {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), true
		case c == '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", false
			}
			b.WriteByte(p.rest[i])
		case c < 0x20 || c > 0x7e:
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// other reads a number, a boolean or a byte sequence, as it is written.
func (p *fieldParser) other() (string, bool) {
	switch {
	case p.eat('?'):
		return "", p.eat('0') || p.eat('1')
	case p.eat(':'):
		p.while(func(c byte) bool { return lower(c|0x20) || digit(c) || strings.IndexByte("+/=", c) >= 0 })
		return "", p.eat(':')
	}
	s := p.while(func(c byte) bool { return digit(c) || c == '-' || c == '.' })
	return s, s != ""
}

func lower(c byte) bool { return c >= 'a' && c <= 'z' }
func digit(c byte) bool { return c >= '0' && c <= '9' }

// count reads a natural number of at most nine digits.
func count(s string) (n int, ok bool) {
	if s == "" || len(s) > 9 {
		return 0, false
	}
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, false
		}
		n = 10*n + int(s[i]-'0')
	}
	return n, true
}

// headerText makes s fit for a string of a structured field.
func headerText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), maxLayerText)]
}

func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
