package input

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
)

func TestForms(t *testing.T) {
	t.Parallel()
	id26 := strings.Repeat("0", 26)
	for _, c := range []struct {
		name  string
		check func(*problem.Issues)
		ok    bool
	}{
		{"longest tenant", func(i *problem.Issues) { Tenant(i, strings.Repeat("A", 128)) }, true},
		{"tenant too long", func(i *problem.Issues) { Tenant(i, strings.Repeat("A", 129)) }, false},
		{"no tenant", func(i *problem.Issues) { Tenant(i, "") }, false},
		{"tenant with a new line", func(i *problem.Issues) { Tenant(i, "a\n") }, false},
		{"tenant beyond ASCII", func(i *problem.Issues) { Tenant(i, "аcme") }, false},
		{"longest name", func(i *problem.Issues) { Name(i, "name", "a"+strings.Repeat("-", 62)) }, true},
		{"name too long", func(i *problem.Issues) { Name(i, "name", "a"+strings.Repeat("-", 63)) }, false},
		{"name that starts with a dash", func(i *problem.Issues) { Name(i, "name", "-a") }, false},
		{"name in upper case", func(i *problem.Issues) { Name(i, "name", "A") }, false},
		{"id", func(i *problem.Issues) { ID(i, "poolId", "pool", "pool_"+id26) }, true},
		{"id of another kind", func(i *problem.Issues) { ID(i, "poolId", "pool", "pacct_"+id26) }, false},
		{"no optional id", func(i *problem.Issues) { OptionalID(i, "poolId", "pool", nil) }, true},
		{"empty optional id", func(i *problem.Issues) { OptionalID(i, "poolId", "pool", new(string)) }, false},
	} {
		var issues problem.Issues
		c.check(&issues)
		if (len(issues) == 0) != c.ok {
			t.Errorf("%s: issues = %v", c.name, issues)
		}
	}
}

func TestCheckPage(t *testing.T) {
	t.Parallel()
	decode := func(s string) (int, bool) { return len(s), s != "bad" }
	number := func(n int) *int { return &n }
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		first *int
		after *string
		want  Page[int]
		paths []string
	}{
		{nil, nil, Page[int]{First: 50}, nil},
		{number(1), text("abcd"), Page[int]{1, "abcd", 4}, nil},
		{number(100), nil, Page[int]{First: 100}, nil},
		{number(0), text("bad"), Page[int]{0, "bad", 3}, []string{"first", "after"}},
		{number(101), nil, Page[int]{First: 101}, []string{"first"}},
	} {
		var issues problem.Issues
		got := CheckPage(&issues, c.first, c.after, decode)
		var paths []string
		for _, i := range issues {
			paths = append(paths, i.Path)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || !cmp.Equal(c.paths, paths) {
			t.Errorf("CheckPage: issues at %v, want %v\n%s", paths, c.paths, diff)
		}
	}
}
