package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"better/compute/internal/id"
)

// serveBare is the limit: the same JSON by hand from prepared statements, without GraphQL, credentials, decisions or limits.
func serveBare(ctx context.Context, url string, out io.Writer) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	b := &bare{pool: pool}
	mux := http.NewServeMux()
	for name, answer := range map[string]func(context.Context, params) ([]byte, error){
		"get": b.get, "list20": b.list, "list100": b.list, "nested": b.nested, "create": b.create,
	} {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) { b.handle(w, r, answer) })
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, ln.Addr()); err != nil {
		return err
	}
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(ln)
}

type bare struct{ pool *pgxpool.Pool }

type params struct {
	Tenant  string `json:"tenant"`
	Account string `json:"account"`
	First   int    `json:"first"`
	Name    string `json:"name"`
}

func (b *bare) handle(w http.ResponseWriter, r *http.Request, answer func(context.Context, params) ([]byte, error)) {
	var p params
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := answer(r.Context(), p)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

const accountColumns = "id, tenant_id, provider, name, config, version, created_at, updated_at"

type account struct {
	id, tenant, provider, name string
	config                     []byte
	version                    int64
	createdAt, updatedAt       time.Time
}

func scanAccount(row pgx.Row, a *account) error {
	return row.Scan(&a.id, &a.tenant, &a.provider, &a.name, &a.config, &a.version, &a.createdAt, &a.updatedAt)
}

// append writes the fields in the order in which the benchmark's query selects them. Nothing in the seeded rows needs escaping.
func (a *account) append(out []byte) []byte {
	out = append(append(out, `{"id":"`...), a.id...)
	out = append(append(out, `","tenantId":"`...), a.tenant...)
	out = append(append(out, `","name":"`...), a.name...)
	out = append(append(out, `","config":`...), a.config...)
	out = strconv.AppendInt(append(out, `,"version":`...), a.version, 10)
	out = appendTime(append(out, `,"createdAt":"`...), a.createdAt)
	out = appendTime(append(out, `","updatedAt":"`...), a.updatedAt)
	out = append(append(out, `","provider":{"name":"`...), a.provider...)
	return append(out, `"}}`...)
}

func appendTime(out []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(out, "2006-01-02T15:04:05.000Z")
}

func (b *bare) get(ctx context.Context, p params) ([]byte, error) {
	var a account
	row := b.pool.QueryRow(ctx, "SELECT "+accountColumns+" FROM provider_accounts WHERE tenant_id = $1 AND id = $2", p.Tenant, p.Account)
	if err := scanAccount(row, &a); err != nil {
		return nil, err
	}
	return append(a.append([]byte(`{"data":{"providerAccount":`)), `}}`...), nil
}

func (b *bare) list(ctx context.Context, p params) ([]byte, error) {
	rows, err := b.pool.Query(ctx, "SELECT "+accountColumns+" FROM provider_accounts WHERE tenant_id = $1 ORDER BY name LIMIT $2", p.Tenant, p.First+1)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out, n := []byte(`{"data":{"providerAccounts":{"nodes":[`), 0
	for rows.Next() {
		var a account
		if err := scanAccount(rows, &a); err != nil {
			return nil, err
		}
		if n++; n > p.First {
			continue
		}
		if n > 1 {
			out = append(out, ',')
		}
		out = a.append(out)
	}
	out = strconv.AppendBool(append(out, `],"pageInfo":{"hasNextPage":`...), n > p.First)
	return append(out, `}}}}`...), rows.Err()
}

func (b *bare) nested(ctx context.Context, p params) ([]byte, error) {
	rows, err := b.pool.Query(ctx, `
		SELECT a.id, a.name, b.id, b.status, b.machine_id, b.created_at
		FROM (SELECT id, tenant_id, name FROM provider_accounts WHERE tenant_id = $1 ORDER BY name LIMIT $2) a
		CROSS JOIN LATERAL (
			SELECT id, status, machine_id, created_at FROM bootstraps
			WHERE tenant_id = a.tenant_id AND account_id = a.id ORDER BY created_at DESC, id DESC LIMIT $3) b
		ORDER BY a.name, b.created_at DESC, b.id DESC`, p.Tenant, p.First, lastRuns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out, last := []byte(`{"data":{"providerAccounts":{"nodes":[`), ""
	for rows.Next() {
		var accountID, name, runID, status, machine string
		var createdAt time.Time
		if err := rows.Scan(&accountID, &name, &runID, &status, &machine, &createdAt); err != nil {
			return nil, err
		}
		switch {
		case accountID == last:
			out = append(out, ',')
		case last != "":
			out = append(out, `]}},`...)
		}
		if accountID != last {
			out = append(append(append(append(out, `{"id":"`...), accountID...), `","name":"`...), name...)
			out = append(out, `","bootstraps":{"nodes":[`...)
			last = accountID
		}
		out = append(append(append(out, `{"id":"`...), runID...), `","status":"FAILED","machineId":"`...)
		out = appendTime(append(append(out, machine...), `","createdAt":"`...), createdAt)
		out = append(out, `"}`...)
	}
	return append(out, `]}}]}}}`...), rows.Err()
}

// create makes the same durable writes as the server: the account and its audit row, in one transaction.
func (b *bare) create(ctx context.Context, p params) ([]byte, error) {
	var a account
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		row := tx.QueryRow(ctx, `INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by)
			VALUES ($1, $2, 'sim', $3, '{"apiToken": "secret://sim"}', 'user:bench') RETURNING `+accountColumns, id.New("pacct"), p.Tenant, p.Name)
		if err := scanAccount(row, &a); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO audit_log (tenant_id, actor, action, object, outcome, details)
			VALUES ($1, 'user:bench', 'provider-account.create', $2, 'allowed', '{}')`, p.Tenant, "compute-provider-account/"+a.id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return append(a.append([]byte(`{"data":{"createProviderAccount":{"providerAccount":`)), `}}}`...), nil
}
