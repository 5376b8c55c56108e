package provider

import (
	"strconv"
	"strings"
)

// maxPathMember is how many characters of a member's name a path repeats, so that it cannot carry a secret-sized text back.
const maxPathMember = 64

// path is a place in a config. A longer path may share memory with its siblings: it is good until the walk goes on to the next
// of them, and String makes what lasts.
type path []step

// step leads to a member of an object or, with a name that is empty, maybe to an item of an array.
type step struct {
	name   string
	item   int
	isItem bool
}

func (p path) member(name string) path { return append(p, step{name: name}) }

func (p path) item(i int) path { return append(p, step{item: i, isItem: true}) }

// String is the JSON pointer.
func (p path) String() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteByte('/')
		if s.isItem {
			b.WriteString(strconv.Itoa(s.item))
		} else {
			b.WriteString(escape(s.name))
		}
	}
	return b.String()
}

func escape(name string) string {
	if runes := []rune(name); len(runes) > maxPathMember {
		name = string(runes[:maxPathMember]) + "..."
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// pattern is a JSON pointer in which `*` stands for any item of an array.
type pattern []string

func parsePattern(pointer string) (p pattern, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, false
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		p = append(p, strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~"))
	}
	return p, true
}

func (p pattern) matches(at path) bool {
	if len(p) != len(at) {
		return false
	}
	for i, s := range at {
		if s.isItem && p[i] != "*" || !s.isItem && p[i] != s.name {
			return false
		}
	}
	return true
}
