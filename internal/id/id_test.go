package id

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNewIsTimeOrderedAndValid(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	earlier, later := newAt("boot", at), newAt("boot", at.Add(time.Millisecond))
	if earlier >= later {
		t.Errorf("ids do not sort by time: %s, then %s", earlier, later)
	}
	if !regexp.MustCompile(`^boot_[0-9a-hjkmnp-tv-z]{26}$`).MatchString(earlier) {
		t.Errorf("New = %q does not have the documented form", earlier)
	}
	seen := map[string]bool{}
	for range 10_000 {
		id := New("boot")
		if seen[id] || !Valid("boot", id) {
			t.Fatalf("New = %q: repeated or not valid", id)
		}
		seen[id] = true
	}
}

func TestDeriveKeepsPartsApart(t *testing.T) {
	t.Parallel()
	for _, other := range [][]string{{"a", "bc"}, {"abc"}, {"", "abc"}, {"abc", ""}} {
		if Derive("pacct", "ab", "c") == Derive("pacct", other...) {
			t.Fatalf("parts that concatenate alike derive the same id: %q", other)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "a")
		b := rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "b")
		same := len(a) == len(b) && strings.Join(a, "\x00\x01") == strings.Join(b, "\x00\x01")
		if got := Derive("pacct", a...) == Derive("pacct", b...); got != same {
			t.Fatalf("Derive(%q) == Derive(%q) is %v", a, b, got)
		}
		if !Valid("pacct", Derive("pacct", a...)) {
			t.Fatalf("Derive(%q) is not valid", a)
		}
	})
}

func TestValid(t *testing.T) {
	t.Parallel()
	ok := strings.Repeat("0", 26)
	for s, want := range map[string]bool{
		"pacct_" + ok:                      true,
		"pacct_" + strings.Repeat("z", 52): true,
		"pacct_" + strings.Repeat("z", 53): false,
		"pacct_" + ok[1:]:                  false,
		"pool_" + ok:                       false,
		"pacct_" + ok[1:] + "u":            false,
		"pacct_" + ok[1:] + "A":            false,
		"pacct_" + ok + "\n":               false,
		"":                                 false,
		"pacct" + ok:                       false,
		"pacct_" + strings.Repeat("é", 13): false,
		"xpacct_" + ok:                     false,
	} {
		if got := Valid("pacct", s); got != want {
			t.Errorf("Valid(%q) = %v, want %v", s, got, want)
		}
	}
}
