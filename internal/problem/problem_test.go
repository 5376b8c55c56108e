package problem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFrom(t *testing.T) {
	t.Parallel()
	taken := New(Conflict, "The name %q is taken.", "a")
	for _, c := range []struct {
		name string
		err  error
		want Code
	}{
		{"a problem", taken, Conflict},
		{"a wrapped problem", fmt.Errorf("creating: %w", taken), Conflict},
		{"a problem whose cause is the end of time", taken.Because(context.DeadlineExceeded), Conflict},
		{"the end of time", fmt.Errorf("reading: %w", context.DeadlineExceeded), Unavailable},
		{"a caller that left", fmt.Errorf("reading: %w", context.Canceled), Unavailable},
		{"anything else", errors.New("secret detail"), Internal},
	} {
		got := From(c.err)
		if got.Code != c.want || strings.Contains(got.Message, "secret") {
			t.Errorf("%s: From = %v", c.name, got)
		}
	}
	if From(nil) != nil {
		t.Error("From(nil) is a problem")
	}
}

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for _, c := range Codes() {
		if s := c.HTTPStatus(); s < 400 || s == 500 && c != Internal {
			t.Errorf("%s has status %d", c, s)
		}
	}
}

func TestWithLeavesTheOriginalAlone(t *testing.T) {
	t.Parallel()
	base := New(RateLimited, "wait").With("a", 1)
	more := base.With("b", 2).Because(errors.New("cause"))
	if diff := cmp.Diff(map[string]any{"a": 1}, base.Details); diff != "" {
		t.Errorf("With changed its receiver:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"a": 1, "b": 2}, more.Details); diff != "" {
		t.Errorf("Details:\n%s", diff)
	}
	if !Is(more, RateLimited) || strings.Contains(more.Message, "cause") {
		t.Errorf("more = %v", more)
	}
}

func TestIssues(t *testing.T) {
	t.Parallel()
	var issues Issues
	if issues.Err() != nil {
		t.Error("no issue is an error")
	}
	issues.Add("name", "must not be %s", "empty")
	issues.Add("", "must be an object")
	p := From(issues.Err())
	if p.Code != InvalidInput || !cmp.Equal(p.Details["issues"], []Issue{{"name", "must not be empty"}, {"", "must be an object"}}) {
		t.Errorf("Err = %v with %v", p, p.Details)
	}
	if one := From(issues[1:].Err()); strings.HasPrefix(one.Message, ":") {
		t.Errorf("the message of an issue at the root reads %q", one.Message)
	}
	whole := Issues{{"", "Machine a has no key."}}
	if got := From(whole.Err()).Message; got != "Machine a has no key." {
		t.Errorf("a sentence at the root reads %q", got)
	}
}
