package provider

import (
	"testing"
	"unicode"
)

// Whatever Unicode folds to a letter of ASCII must not hide a secret's name.
func TestNamesFoldAsUnicodeDoes(t *testing.T) {
	t.Parallel()
	for r := range rune(unicode.MaxRune) {
		for folded := unicode.SimpleFold(r); folded != r; folded = unicode.SimpleFold(folded) {
			if 'a' <= folded && folded <= 'z' && foldName("é"+string(r)) != "é"+string(folded) {
				t.Errorf("%U is %q", r, foldName(string(r)))
			}
		}
	}
	for name, want := range map[string]string{"API-Key_1": "apikey1", "ÀPI-KEY": "àpikey", "\u212aey": "key", "": "", "é9٣": "é9٣"} {
		if got := foldName(name); got != want {
			t.Errorf("%q is %q", name, got)
		}
	}
}
