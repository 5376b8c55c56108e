package apitoken

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

func version(t *testing.T, db *postgres.DB) (v int64) {
	t.Helper()
	if err := db.NewRaw("SELECT version FROM policy_version").Scan(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// What ends a token moves the policy's version and names the token; what does not, does neither.
func TestTheEndOfATokenIsAnnouncedAsAChangeOfThePolicy(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN authz"); err != nil {
		t.Fatal(err)
	}
	const insert = `INSERT INTO api_tokens (id, tenant_id, name, subject, token_hash, created_by, expires_at)
		SELECT 'tok_' || n, 't', 'n', 'service:t/n', sha256(n::text::bytea), 'user:a', now() + interval '1 hour' FROM generate_series(1, 3) AS n`
	for _, c := range []struct {
		name, sql string
		want      []string
	}{
		{"a new one", insert, nil},
		{"its use", "UPDATE api_tokens SET last_used_at = now()", nil},
		{"a revocation", "UPDATE api_tokens SET revoked_at = now(), revoked_by = 'user:a' WHERE id = 'tok_1'", []string{"token:tok_1"}},
		{"the same values", "UPDATE api_tokens SET revoked_at = revoked_at, expires_at = expires_at", nil},
		{"another end", "UPDATE api_tokens SET expires_at = now() WHERE id <> 'tok_1'", []string{"token:tok_2", "token:tok_3"}},
		{"another id", "UPDATE api_tokens SET id = 'tok_4' WHERE id = 'tok_3'", []string{"token:tok_3"}},
		{"no row", "DELETE FROM api_tokens WHERE id = 'tok_9'", nil},
		{"a deletion", "DELETE FROM api_tokens WHERE id = 'tok_2'", []string{"token:tok_2"}},
		{"all of them", "TRUNCATE api_tokens", []string{"*"}},
	} {
		before := version(t, db)
		if _, err := db.Pool.Exec(t.Context(), asOwner(c.sql)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		moved := version(t, db) - before
		if want := int64(min(len(c.want), 1)); moved != want {
			t.Errorf("%s: the version moved by %d, want %d", c.name, moved, want)
		}
		if len(c.want) == 0 {
			continue
		}
		for _, want := range append(c.want, "=") {
			got := notification(t, conn.Conn())
			if got != want && (want != "=" || got[:1] != "=") {
				t.Errorf("%s: heard %q, want %q", c.name, got, want)
			}
		}
	}
}

// asOwner makes a statement one of the tables' owner: the server itself may not delete tokens.
func asOwner(statement string) string {
	return "BEGIN; SET LOCAL ROLE NONE; " + statement + "; COMMIT"
}

func notification(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n.Payload
}
