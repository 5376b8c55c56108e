package apitest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// story is one file of testdata; testdata/README.md has its grammar.
type story struct {
	name  string
	steps []step
}

// step is one section of a story.
type step struct {
	only   string // "rest" or "graphql"; empty: both
	verb   string // "call", "vary", "grant", "deny", "sql" or "audit"
	actor  string
	method string // of a call; the role of a grant
	object string // of a grant
	keep   string // the name that the answer's id is kept under
	code   string // that must come; empty: success
	body   string
	title  string
}

var (
	sectionForm = regexp.MustCompile(`(?m)^-- (.+) --$`)
	callForm    = regexp.MustCompile(`^(\w+) (\w+)(?: as (\w+))?(?: -> ([A-Z_]+))?$`)
)

// parseStory reads a file in the txtar format.
func parseStory(name, text string) (*story, error) {
	s := &story{name: name}
	sections := sectionForm.FindAllStringSubmatchIndex(text, -1)
	for i, at := range sections {
		end := len(text)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		st, err := parseStep(text[at[2]:at[3]], text[at[1]:end])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.steps = append(s.steps, st)
	}
	if len(s.steps) == 0 || strings.TrimSpace(text[:sections[0][0]]) == "" {
		return nil, fmt.Errorf("%s: has no steps, or does not say what it shows", name)
	}
	return s, nil
}

func parseStep(title, body string) (step, error) {
	st := step{title: title, body: strings.TrimSpace(body)}
	rest := title
	for _, transport := range []string{"rest", "graphql"} {
		if cut, ok := strings.CutPrefix(rest, transport+" "); ok {
			st.only, rest = transport, cut
		}
	}
	words := strings.Fields(rest)
	switch words[0] {
	case "sql", "audit":
		st.verb = words[0]
		return st, nil
	case "vary":
		if len(words) == 3 {
			st.verb, st.actor, st.method = "vary", words[1], words[2]
			return st, nil
		}
	case "grant", "deny":
		if len(words) == 4 {
			st.verb, st.actor, st.method, st.object = words[0], words[1], words[2], words[3]
			return st, nil
		}
	default:
		if m := callForm.FindStringSubmatch(rest); m != nil {
			st.verb, st.actor, st.method, st.keep, st.code = "call", m[1], m[2], m[3], m[4]
			return st, nil
		}
	}
	return step{}, fmt.Errorf("cannot read the section %q", title)
}

var (
	variableForm = regexp.MustCompile(`\$\{([^}]+)\}`)
	repeatForm   = regexp.MustCompile(`^(.+)\*([0-9]+)$`)
)

// expand replaces variables. Each ${n} is a new number.
func expand(text string, variables map[string]string, next func() int) (string, error) {
	var failed error
	text = variableForm.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		if m := repeatForm.FindStringSubmatch(name); m != nil {
			times, _ := strconv.Atoi(m[2]) // digits, says the form
			return strings.Repeat(m[1], times)
		}
		if name == "n" {
			return strconv.Itoa(next())
		}
		value, known := variables[name]
		if !known {
			failed = fmt.Errorf("nothing is kept under ${%s}", name)
		}
		return value
	})
	return text, failed
}
