// Package input owns the rules of form that fields of several nouns share, and what is said about a field that breaks one.
//
// It refuses to know nouns, rights and the database. The invariant: a rule is anchored to the whole text, counts
// characters, and its complaint repeats no value.
package input

import (
	"regexp"

	"better/compute/internal/id"
	"better/compute/internal/problem"
)

// Bounds of a page.
const (
	DefaultPage = 50
	MaxPage     = 100
)

// `$` alone would let a new line through.
var (
	tenantForm = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`)
	nameForm   = regexp.MustCompile(`\A[a-z0-9][a-z0-9._-]{0,62}\z`)
)

// Tenant checks a tenant's id, the field tenantId.
func Tenant(issues *problem.Issues, tenantID string) {
	if !ValidTenant(tenantID) {
		issues.Add("tenantId", "must match ^[A-Za-z0-9._:-]{1,128}$")
	}
}

// ValidTenant reports whether a tenant's id has the form of one.
func ValidTenant(tenantID string) bool { return tenantForm.MatchString(tenantID) }

// Name checks the name of an object, or of a region.
func Name(issues *problem.Issues, path, name string) {
	if !ValidName(name) {
		issues.Add(path, "must match ^[a-z0-9][a-z0-9._-]{0,62}$")
	}
}

// ValidName reports whether a name has the form of an object's.
func ValidName(name string) bool { return nameForm.MatchString(name) }

// ID checks the id of an object with the prefix.
func ID(issues *problem.Issues, path, prefix, v string) {
	if !id.Valid(prefix, v) {
		issues.Add(path, "must match ^%s_[0-9a-hjkmnp-tv-z]{26,52}$", prefix)
	}
}

// OptionalID checks the id if there is one.
func OptionalID(issues *problem.Issues, path, prefix string, v *string) {
	if v != nil {
		ID(issues, path, prefix, *v)
	}
}

// Range checks a number, if there is one, against its bounds.
func Range(issues *problem.Issues, path string, n *int, low, high int) {
	if n != nil && (*n < low || *n > high) {
		issues.Add(path, "must be from %d to %d", low, high)
	}
}

// Page is a part of a list: First items after Place, which is the zero value at the start.
type Page[P any] struct {
	First int
	After string // the cursor as given
	Place P
}

// CheckPage reads `first`, by default 50, and `after`, the cursor of an earlier page, which decode understands.
func CheckPage[P any](issues *problem.Issues, first *int, after *string, decode func(cursor string) (P, bool)) Page[P] {
	p := Page[P]{First: DefaultPage}
	Range(issues, "first", first, 1, MaxPage)
	if first != nil {
		p.First = *first
	}
	if after == nil {
		return p
	}
	var ok bool
	p.After = *after
	if p.Place, ok = decode(*after); !ok {
		issues.Add("after", "must be the endCursor of an earlier page")
	}
	return p
}
