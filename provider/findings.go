package provider

import (
	"slices"

	"better/compute/internal/problem"
)

const maxIssues = 100 // that one answer lists

// findings are what is wrong with a config. Those for which an answer has no room are only counted: a config of thousands of wrong members is to be
// neither a large answer nor much work.
type findings struct {
	issues problem.Issues
	more   int
	spoken map[string]bool // paths of which no more is to be said
}

func (f *findings) add(at path, format string, args ...any) {
	if f.full() {
		f.more++
		return
	}
	if name := at.String(); !f.spoken[name] {
		f.issues.Add(name, format, args...)
	}
}

// full reports whether an answer has room for no more.
func (f *findings) full() bool { return len(f.issues) >= maxIssues }

// onlyOfOthers lets only those be added from now on that are of other paths.
func (f *findings) onlyOfOthers() {
	f.spoken = map[string]bool{}
	for _, i := range f.issues {
		f.spoken[i.Path] = true
	}
}

// all gives the issues in the order in which they were found, once each.
func (f *findings) all() problem.Issues {
	issues := slices.Compact(f.issues)
	if f.more > 0 {
		issues.Add("", "breaks at least %d more rules", f.more)
	}
	return issues
}
