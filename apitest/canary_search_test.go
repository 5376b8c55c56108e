package apitest

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"testing"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

// A search that finds nothing is worth something only when it finds what is there.
func TestTheSearchSeesASecretInEveryDisguise(t *testing.T) {
	t.Parallel()
	secret := "a+Secret/of this=test"
	own := newCanaries("it", secret)
	for name, text := range map[string]string{
		"as it is":        "x" + secret + "y",
		"base64":          base64.StdEncoding.EncodeToString([]byte("12" + secret + "3")),
		"base64, shifted": base64.StdEncoding.EncodeToString([]byte("1" + secret)),
		"base64, for URL": base64.RawURLEncoding.EncodeToString([]byte(secret + "~~~")),
		"hex":             hex.EncodeToString([]byte("12" + secret)),
		"in a URL":        "https://x/?q=" + url.QueryEscape(secret),
	} {
		if own.in([]byte(text)) != "it" {
			t.Errorf("%s: not found in %s", name, text)
		}
	}
	if own.in([]byte("a+Secret/of this test")) != "" {
		t.Error("found what is not there")
	}
}

func TestTheSearchSeesASecretInATable(t *testing.T) {
	t.Parallel()
	own := newCanaries("it", "a-planted-token")
	dsn := pgtest.URL(t)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		`INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t', 'n', 'k', 'x a-planted-token y')`, // bytea: shown in hex
		`INSERT INTO audit_log (tenant_id, actor, action, object, outcome, details) VALUES ('', '', '', '', 'denied', '{"a": "a-planted-token"}')`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if found := own.searchDatabase(t, dsn); len(found) != 2 {
		t.Errorf("found %v, want it in secrets and in audit_log", found)
	}
}
