package apitest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// canaries are the secrets of this test run, and what each looks like in the disguises that a careless program gives it.
type canaries struct {
	mu      sync.Mutex
	needles map[string]string // the text to look for, to the name of what it gives away
}

// core is in every secret that newSecret makes, so that one search finds them all.
var core = "cnry" + rand.Text()

// planted is shared by all tests of the run: a secret of one must not be seen by another either.
var planted = newCanaries("a planted secret", core)

func newCanaries(name, value string) *canaries {
	c := &canaries{needles: map[string]string{}}
	c.add(name, value)
	return c
}

// newSecret makes a secret that is searched for wherever this package looks.
func newSecret() string { return core + "/+" + rand.Text() }

// add watches for a secret that was made elsewhere.
func (c *canaries) add(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, form := range disguises(value) {
		c.needles[form] = name
	}
}

// disguises are the forms of a text that do not depend on what stands around it.
func disguises(value string) []string {
	forms := []string{
		value, url.QueryEscape(value), url.PathEscape(value), strings.ToLower(value),
		hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))),
	}
	for shift := range 3 { // whichever third of four characters the text begins in
		padded := append(bytes.Repeat([]byte{0}, shift), value...)
		encoded := base64.RawStdEncoding.EncodeToString(padded)
		inner := encoded[4 : len(encoded)-4]
		forms = append(forms, inner, strings.NewReplacer("+", "-", "/", "_").Replace(inner))
	}
	return forms
}

// in names the first secret that the text gives away, or is empty.
func (c *canaries) in(text []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for needle, name := range c.needles {
		if bytes.Contains(text, []byte(needle)) {
			return name
		}
	}
	return ""
}

// searchDatabase reads every row of every table as text.
func (c *canaries) searchDatabase(t testing.TB, dsn string) (found []string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also when the test is over
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
		WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 10 {
		t.Fatalf("found the tables %v: %v", tables, err)
	}
	for _, table := range tables {
		rows, err := conn.Query(ctx, "SELECT r::text FROM "+table+" AS r")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			if name := c.in(rows.RawValues()[0]); name != "" {
				found = append(found, name+" in "+table)
			}
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	}
	return found
}
