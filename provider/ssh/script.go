package ssh

import (
	"embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"better/compute/provider"
)

//go:embed scripts
var scripts embed.FS

const (
	beginMark = "@begin"
	endMark   = "@end "
)

// result is what a script printed, errors included, and its exit code.
type result struct {
	lines []string
	code  int
}

// script runs the named scripts as one, with the variables set. It goes to the shell over stdin, so nothing of it shows in a list of
// processes, and as one compound command, so that a shell that gets only half of it runs nothing.
func (c *connection) script(variables map[string]string, names ...string) (*result, error) {
	out, err := c.run("sh -s", strings.NewReader(compose(variables, names...)))
	if err != nil {
		return nil, err
	}
	_, rest, began := strings.Cut("\n"+string(out.stdout.text), "\n"+beginMark+"\n")
	if !began {
		return nil, c.noShell(out)
	}
	body, code, ended := cutLast(rest, endMark)
	if !ended {
		return nil, provider.Errorf(provider.InvalidResponse, "A script on %s ended too early or said too much.", c.machine)
	}
	exit, err := strconv.Atoi(strings.TrimSpace(code))
	if err != nil {
		return nil, provider.Errorf(provider.InvalidResponse, "A script on %s ended without an exit code.", c.machine)
	}
	return &result{lines: printableLines(body), code: exit}, nil
}

// noShell tells of a login that leads nowhere: a cloud image that wants another user, nologin, a sudo that asks for a password.
func (c *connection) noShell(out *output) error {
	said := "nothing"
	for _, text := range [][]byte{out.stderr.text, out.stdout.text} {
		if lines := printableLines(string(text)); len(lines) > 0 {
			said = strconv.Quote(lines[0])
			break
		}
	}
	if c.machine.Sudo {
		return provider.Errorf(provider.SSHAuth, "%s takes the login, but sudo gives no shell; it said %s. sudo must not ask for a password.", capital(c.machine.String()), said)
	}
	return provider.Errorf(provider.SSHAuth, "%s takes the login, but gives no shell; it said %s.", capital(c.machine.String()), said)
}

func compose(variables map[string]string, names ...string) string {
	var b strings.Builder
	b.WriteString("{\necho '" + beginMark + "'\n(\nset -eu\n")
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		b.WriteString(name + "=" + quote(variables[name]) + "\n")
	}
	for _, name := range append([]string{"prelude.sh"}, names...) {
		text, err := scripts.ReadFile("scripts/" + name)
		if err != nil {
			panic(err) // names are constants
		}
		b.Write(text)
	}
	b.WriteString(") 2>&1\necho '" + endMark + "'$?\nexit 0\n}\n")
	return b.String()
}

// quote makes one word of the shell's out of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// values gives the values of a name, of the lines `name=value`.
func (r *result) values(name string) []string {
	var values []string
	for _, line := range r.lines {
		if value, ok := strings.CutPrefix(line, name+"="); ok && value != "" {
			values = append(values, value)
		}
	}
	return values
}

// value is the first of values, or nothing.
func (r *result) value(name string) string { return firstOf(r.values(name)...) }

// number is a value that counts something, or -1.
func (r *result) number(name string) int64 {
	n, err := strconv.ParseInt(r.value(name), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

const (
	maxLines = 1000
	maxLine  = 500
)

// printableLines makes a machine's text fit to show: lines without control characters, none of them empty or without end.
func printableLines(text string) []string {
	lines := []string{}
	for line := range strings.Lines(strings.ToValidUTF8(text, "")) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r == '\t' {
				return ' '
			}
			if !unicode.IsPrint(r) {
				return -1
			}
			return r
		}, line))
		if line == "" {
			continue
		}
		if runes := []rune(line); len(runes) > maxLine {
			line = string(runes[:maxLine])
		}
		if lines = append(lines, line); len(lines) == maxLines {
			break
		}
	}
	return lines
}

// tail is the last 40 of the lines.
func tail(lines []string) []string { return lines[max(0, len(lines)-40):] }
