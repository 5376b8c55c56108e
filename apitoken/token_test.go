package apitoken

import (
	"regexp"
	"strings"
	"testing"
)

func TestTokensHaveTheFormThatScannersKnow(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`\Abct_[0-9a-hjkmnp-tv-z]{56}\z`)
	seen := map[string]bool{}
	for range 1000 {
		token := newToken()
		if !form.MatchString(token) || !wellFormed(token) || seen[token] {
			t.Fatalf("%q", token)
		}
		seen[token] = true
	}
}

// A typo, whatever it is, is told without the database.
func TestTyposAreTold(t *testing.T) {
	t.Parallel()
	token := newToken()
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	accepted := 0
	for i := len(Prefix); i < len(token); i++ {
		for _, c := range alphabet {
			if changed := token[:i] + string(c) + token[i+1:]; changed != token && wellFormed(changed) {
				accepted++
			}
		}
		if i > len(Prefix) && token[i] != token[i-1] {
			swapped := token[:i-1] + string(token[i]) + string(token[i-1]) + token[i+1:]
			if wellFormed(swapped) {
				accepted++
			}
		}
	}
	if accepted > 0 {
		t.Errorf("%d typos pass for the token", accepted)
	}
	for _, wrong := range []string{
		"", Prefix, token[:len(token)-1], token + "0", token + "\n", "\n" + token, token[:10] + "\n" + token[10:], token[:10] + "\r\n" + token[12:],
		strings.ToUpper(token), strings.TrimPrefix(token, Prefix), Prefix + token, Prefix + strings.Repeat("0", 56), Prefix + strings.Repeat("u", 56),
	} {
		if wellFormed(wrong) {
			t.Errorf("%q passes", wrong)
		}
	}
}
