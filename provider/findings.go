package provider

import (
	"slices"

	"better/compute/internal/problem"
)

const maxIssues = 100 // that one answer lists

// findings are what is wrong with a config, as much of it as an answer has room for: a config of thousands of wrong members is to be neither a large
// answer nor much work.
type findings struct {
	issues problem.Issues
	more   bool
	spoken map[string]bool // paths of which no more is to be said
}

func (f *findings) add(at path, format string, args ...any) {
	if f.full() {
		f.more = true
		return
	}
	if name := at.String(); !f.spoken[name] {
		f.issues.Add(name, format, args...)
	}
}

// full reports whether an answer has room for no more.
func (f *findings) full() bool { return len(f.issues) >= maxIssues }

// done reports whether nothing that may be found any more would be told.
func (f *findings) done() bool { return f.more }

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
	if f.more {
		issues.Add("", "breaks more rules than these %d", maxIssues)
	}
	return issues
}
