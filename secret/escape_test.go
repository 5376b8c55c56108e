package secret

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"better/compute/internal/postgres/pgtest"
	"better/compute/secret/vault/vaulttest"
)

var (
	references    = flag.Int("references", 5_000, "how many references try to leave their tenant's prefix in the vault")
	referenceSeed = flag.Uint64("reference-seed", 0, "repeats a run")
)

// tricks are what paths have been escaped with.
func tricks() []string {
	return []string{
		"..", ".", "/", "//", "\\", "%2e%2e", "%2E", "%2f", "%5c", "%252e%252e%252f", "..;/", "..%00/", "\x00", "\n", "\r\n", "?", "?version=1", "#", "##", "&list=true",
		"compute", "secret/data/compute", "v1", "sys", "auth/token/lookup-self", "acme", "other", "ns1/", "\u2024\u2024", "\uff0e\uff0e", "\u2215", "\xc0\xae", " ", "\t",
		"://", "vault://", "@evil", ":8200", "~", "*", "+", "a", "b.c", ".a", "a.", "-", "_", "A", "a b", "é", "/../../other/token", "../other", "a/..", "a/../../other",
	}
}

// bend makes a reference out of a good one.
func bend(r *rand.Rand) string {
	all := tricks()
	s := []byte("vault://clouds/hetzner#token")
	for range 1 + r.IntN(4) {
		at := len("vault://") + r.IntN(len(s)-len("vault://")+1)
		if r.IntN(8) == 0 {
			at = r.IntN(len(s) + 1)
		}
		end := min(len(s), at+r.IntN(3))
		s = slices.Concat(s[:at:at], []byte(all[r.IntN(len(all))]), s[end:])
	}
	return string(s)
}

// isInside follows whatever a server could make of the path.
func isInside(req *http.Request, prefix string) bool {
	p := req.RequestURI
	for range 4 {
		if cleaned := path.Clean(p); !strings.HasPrefix(p, prefix) || !strings.HasPrefix(cleaned, prefix) || strings.ContainsAny(p, "?#\\\x00") {
			return false
		}
		decoded, err := url.PathUnescape(p)
		if err != nil {
			return false
		}
		p = decoded
	}
	return req.Method == http.MethodGet && req.Header.Get("X-Vault-Namespace") == vaulttest.Namespace
}

// No reference that a tenant could write makes the server ask the vault for something outside of the tenant's prefix.
func TestNoReferenceLeavesItsTenant(t *testing.T) {
	t.Parallel()
	seed := *referenceSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	r := rand.New(rand.NewPCG(seed, 0))
	asked := vaulttest.New(t)
	service := New(Deps{DB: pgtest.New(t), Vault: asked.Client(t)})
	tenants := []string{"acme", "other", "..", ".", "a.b", "a:b", "...", "A"}
	requests, outside := 0, 0
	for range *references {
		tenant, reference := tenants[r.IntN(len(tenants))], bend(r)
		if _, err := service.Resolve(t.Context(), tenant, reference); err == nil {
			t.Fatalf("%q of %q gave something", reference, tenant)
		}
		for _, req := range asked.Taken() {
			requests++
			if !isInside(req, "/v1/secret/data/compute/"+tenant+"/") {
				outside++
				t.Errorf("%q of %q asked for %s %q", reference, tenant, req.Method, req.RequestURI)
			}
		}
	}
	if requests < *references/50 {
		t.Errorf("only %d requests were made: too few references are good ones", requests)
	}
	verdict := "PASS"
	if t.Failed() {
		verdict = "FAIL"
	}
	fmt.Printf("vault-references references=%d requests=%d outside=%d %s seed=%d\n", *references, requests, outside, verdict, seed)
}
