package apitest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

// TestNoChangeOutlivesTheRightToIt has every mutation wait in its transaction while its caller loses the right, or the API token: it fails
// and leaves nothing behind, in whatever order the two were asked for.
func TestNoChangeOutlivesTheRightToIt(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	for _, loss := range []struct {
		what, lose, restore string
		want                problem.Code
	}{
		{
			"the right", "DELETE FROM role_bindings WHERE subject = 'service:root'",
			"INSERT INTO role_bindings (subject, role, object, effect) VALUES ('service:root', 'fleet-admin', 'compute-fleet', 'allow')", problem.Forbidden,
		},
		{
			"the token", "UPDATE api_tokens SET revoked_at = now() WHERE subject = 'service:root'",
			"UPDATE api_tokens SET revoked_at = NULL WHERE subject = 'service:root'", problem.Unauthenticated,
		},
	} {
		for _, c := range w.changes() {
			t.Run(c.String()+" without "+loss.what, func(t *testing.T) {
				harness.Await(t, "the caller to have every right", func() bool {
					out := w.server.execute(t, w.root, "{ viewer { permissions } }", nil)
					permissions, _ := member(member(out.Data, "viewer"), "permissions").([]any)
					return slices.Contains(permissions, any("IAM_MANAGE"))
				})
				before := w.nouns(t)
				answered := make(chan struct{})
				lost := w.loseWhileWaiting(t, answered, c, loss.lose)
				code, request := w.make(t, c, w.root)
				close(answered)
				if err := <-lost; err != nil {
					t.Fatalf("%v; the change answered %q", err, code)
				}
				if code != loss.want {
					t.Errorf("it answers %q, want %s", code, loss.want)
				}
				if rows := w.rows(t, request); slices.ContainsFunc(rows, func(row string) bool { return !strings.HasSuffix(row, " denied") }) {
					t.Errorf("it has the rows %v", rows)
				}
				if after := w.nouns(t); !maps.Equal(after, before) {
					t.Errorf("something is left: %v, was %v", after, before)
				}
				w.asOwner(t, loss.restore)
			})
		}
	}
}

// nouns is the state without what the test and the loss change themselves.
func (w *auditWorld) nouns(t *testing.T) map[string]string {
	t.Helper()
	state := w.state(t)
	for _, table := range []string{"role_bindings", "policy_version", "api_tokens", "audit_log"} {
		delete(state, table)
	}
	return state
}

// loseWhileWaiting takes what the change will wait for: the policy, where that decides under its lock, and else the audit log, to which
// each comes last. Once the change waits, the loss is committed and the lock given back in one.
func (w *auditWorld) loseWhileWaiting(t *testing.T, answered <-chan struct{}, c change, lose string) (lost <-chan error) {
	t.Helper()
	lock := "LOCK TABLE audit_log IN SHARE ROW EXCLUSIVE MODE"
	underLock := []string{
		"grantRole", "revokeRole", "defineRole", "deleteRole", "createApiToken", "revokeApiToken", "deleteProviderAccount",
	}
	if slices.Contains(underLock, c.mutation) {
		lock = "SELECT FROM policy_version FOR UPDATE"
	}
	locked, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- w.db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.ExecContext(ctx, "SET LOCAL ROLE NONE; "+lock); err != nil {
				return err
			}
			close(locked)
			var holder int
			if err := tx.NewRaw("SELECT pg_backend_pid()").Scan(ctx, &holder); err != nil {
				return err
			}
			if err := w.waitForWaiter(ctx, answered, holder); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, lose)
			return err
		})
	}()
	select {
	case <-locked:
	case err := <-ended:
		t.Fatal("locking: ", err)
	}
	return ended
}

func (w *auditWorld) waitForWaiter(ctx context.Context, answered <-chan struct{}, holder int) error {
	for waits := false; !waits; {
		select {
		case <-answered:
			return errors.New("the change did not wait")
		case <-time.After(5 * time.Millisecond):
		}
		err := w.db.NewRaw("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND ? = ANY (pg_blocking_pids(pid)))", holder).Scan(ctx, &waits)
		if err != nil {
			return err
		}
	}
	return nil
}
