package provider

import (
	"strings"
	"testing"
)

func TestParseReference(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	for s, want := range map[string]Reference{
		"secret://sim":                 {SecretScheme, "sim", ""},
		"secret://" + long:             {SecretScheme, long, ""},
		"env://HCLOUD_TOKEN":           {EnvScheme, "HCLOUD_TOKEN", ""},
		"env://_x1":                    {EnvScheme, "_x1", ""},
		"vault://sim#token":            {VaultScheme, "sim", "token"},
		"vault://cloud/eu-1/sim#t.o_k": {VaultScheme, "cloud/eu-1/sim", "t.o_k"},
	} {
		got, err := ParseReference(s)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
		if got.String() != s {
			t.Errorf("%q comes back as %q", s, got)
		}
	}
	for _, s := range []string{
		"", "sim", "secret:", "secret:/", "secret://", "secret:///sim", "secret://Sim", "secret://-sim", "secret://" + long + "a", "secret://sim\n",
		" secret://sim", "secret://sim#f", "secret://a/b", "secret://%73im", "SECRET://sim", "http://sim", "secret://sim?x",
		"env://", "env://1A", "env://A-B", "env://A B", "env://A\x00", "env://A=B",
		"vault://", "vault://sim", "vault://sim#", "vault://#f", "vault:///sim#f", "vault://sim/#f", "vault://a//b#f", "vault://../a#f", "vault://a/..#f",
		"vault://a/./b#f", "vault://.a#f", "vault://a/b..c#f", "vault://a%2fb#f", "vault://a\\b#f", "vault://a?b#f", "vault://a\x00b#f", "vault://a#f#g", "vault://a#f/g",
		"vault://a#..", "vault://é#f", "vault://a:b#f", "vault://" + strings.Repeat("a/", 16) + "a#f", "vault://" + strings.Repeat("a", 129) + "#f",
	} {
		if got, err := ParseReference(s); err == nil {
			t.Errorf("%q is taken for %+v", s, got)
		}
	}
}

// FuzzReference holds the promise that lets a path be put behind a tenant's prefix: it has no way out of there.
func FuzzReference(f *testing.F) {
	for _, seed := range []string{"secret://a", "env://A", "vault://a/b#c", "vault://a/../b#c", "vault://%2e%2e/a#b", "vault://a\\..\\b#c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseReference(s)
		if err != nil {
			return
		}
		if r.String() != s {
			t.Fatalf("%q is read as %q", s, r)
		}
		for _, bad := range []string{"..", "//", "\\", "%", "?", "#", "\x00", "\n", " ", ":"} {
			if strings.Contains(r.Name, bad) || strings.Contains(r.Field, bad) {
				t.Fatalf("%q holds %q", s, bad)
			}
		}
		if strings.HasPrefix(r.Name, "/") || strings.HasPrefix(r.Name, ".") || strings.HasSuffix(r.Name, "/") {
			t.Fatalf("%q is not a plain path", s)
		}
	})
}
