package sim

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`)
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		encoded, ok := encodeID(id)
		if ok != pattern.MatchString(encoded) {
			t.Fatalf("%q is %q, usable: %v", id, encoded, ok)
		}
		if !ok {
			return
		}
		if decoded, ok := decodeID(encoded); decoded != id || !ok {
			t.Fatalf("%q is %q, and that is %q", id, encoded, decoded)
		}
	})
	for _, bad := range []string{"", "_", "_4", "_zz", "_2f", "_41", "a/b", "a b", "_00_"} {
		if decoded, ok := decodeID(bad); ok {
			t.Errorf("%q is taken for %q", bad, decoded)
		}
	}
	if encoded, _ := encodeID("cpx22:fsn1"); encoded != "cpx22:fsn1" {
		t.Errorf("a plain id became %q", encoded)
	}
}
