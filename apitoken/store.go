package apitoken

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

const columns = "id, nullif(tenant_id, '') AS tenant_id, name, subject, description, created_by, created_at, expires_at, last_used_at, revoked_at"

// stored is the tenant as the table spells it: what belongs to the fleet has none.
func stored(tenantID *string) string {
	if tenantID == nil {
		return ""
	}
	return *tenantID
}

// isPast asks the database, whose time decides when a token ends.
func isPast(ctx context.Context, db *postgres.DB, at time.Time) (past bool, err error) {
	if err := db.NewRaw("SELECT ? <= clock_timestamp()", at).Scan(ctx, &past); err != nil {
		return false, postgres.Translate(fmt.Errorf("comparing a time with the database's: %w", err))
	}
	return past, nil
}

// draft is a token before it is stored.
type draft struct {
	tenantID    *string
	name        string
	description string
	expiresAt   *model.Time
}

// insert stores the hash of the token as a parameter, which is in no statement's text.
func insert(ctx context.Context, tx bun.Tx, by, token string, d draft) (*model.APIToken, error) {
	h, tokenID := hashOf(token), id.New(idPrefix)
	var expires *time.Time
	if d.expiresAt != nil {
		expires = &d.expiresAt.Time
	}
	_, err := tx.Tx.ExecContext(ctx, `INSERT INTO api_tokens (id, tenant_id, name, subject, description, token_hash, created_by, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		tokenID, stored(d.tenantID), d.name, subjectOf(d.tenantID, d.name), d.description, h[:], by, expires)
	if err != nil {
		return nil, fmt.Errorf("storing an API token: %w", err)
	}
	return one(ctx, tx, "SELECT "+columns+" FROM api_tokens WHERE id = ?", tokenID)
}

// revoke ends the token, and gives nil when there is none left to end.
func revoke(ctx context.Context, tx bun.Tx, by, tokenID string) (*model.APIToken, error) {
	t, err := one(ctx, tx, "UPDATE api_tokens SET revoked_at = clock_timestamp(), revoked_by = ? WHERE id = ? AND revoked_at IS NULL RETURNING "+columns,
		by, tokenID)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	return t, err
}

// lock reads a token for a change. NOT_FOUND when its owner has none of that id.
func lock(ctx context.Context, tx bun.Tx, tenantID *string, tokenID string) (*model.APIToken, error) {
	return one(ctx, tx, "SELECT "+columns+" FROM api_tokens WHERE id = ? AND tenant_id = ? FOR UPDATE", tokenID, stored(tenantID))
}

func one(ctx context.Context, idb bun.IDB, query string, args ...any) (*model.APIToken, error) {
	t := new(model.APIToken)
	err := idb.NewRaw(query, args...).Scan(ctx, t)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, problem.New(problem.NotFound, "There is no such API token.")
	}
	if err != nil {
		return nil, fmt.Errorf("reading an API token: %w", err)
	}
	return t, nil
}

// selectPage reads one item more than the page has.
func selectPage(ctx context.Context, idb bun.IDB, tenantID *string, p input.Page[place]) ([]*model.APIToken, error) {
	tokens := []*model.APIToken{}
	query := idb.NewSelect().TableExpr("api_tokens").ColumnExpr(columns).
		Where("tenant_id = ?", stored(tenantID)).OrderExpr("created_at DESC, id DESC").Limit(int64(p.First + 1))
	if p.After != "" {
		query.Where("(created_at, id) < (?, ?)", p.Place.createdAt(), p.Place.ID)
	}
	if err := query.Scan(ctx, &tokens); err != nil {
		return nil, postgres.Translate(fmt.Errorf("listing API tokens: %w", err))
	}
	return tokens, nil
}

// facts are what never changes about a token. It counts until ends by this process's clock, which is as far from now as its end
// was from the database's now.
type facts struct {
	id      string
	subject string
	ends    time.Time // zero: never

	noteAfter time.Time // when the next use is worth a note
}

// find looks a token up by its hash, also one that does not count any more.
func find(ctx context.Context, db *postgres.DB, h hash, now func() time.Time) (f facts, found bool, err error) {
	var left sql.NullFloat64
	start := now()
	err = db.DB.DB.QueryRowContext(ctx, `SELECT id, subject, extract(epoch FROM expires_at - clock_timestamp())::float8
		FROM api_tokens WHERE token_hash = $1`, h[:]).Scan(&f.id, &f.subject, &left)
	if errors.Is(err, sql.ErrNoRows) {
		return facts{}, false, nil
	}
	if err != nil {
		return facts{}, false, postgres.Translate(fmt.Errorf("looking up an API token: %w", err))
	}
	if left.Valid {
		f.ends = start.Add(seconds(left.Float64))
	}
	return f, true, nil
}

// seconds is exact enough, and does not overflow for an end in thousands of years.
func seconds(s float64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	if s > most.Seconds() {
		return most
	}
	return max(time.Duration(s*float64(time.Second)), -most)
}

// noteUse writes down that the tokens were used just now, where the last note is about a minute old.
func noteUse(ctx context.Context, db *postgres.DB, ids []string) error {
	_, err := db.NewRaw(`UPDATE api_tokens SET last_used_at = clock_timestamp()
		WHERE id IN (?) AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '50 seconds')`, bun.List(ids)).Exec(ctx)
	if err != nil {
		return fmt.Errorf("noting the use of API tokens: %w", err)
	}
	return nil
}
