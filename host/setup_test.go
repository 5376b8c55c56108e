package host_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"testing"
	"time"

	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/host"
	"better/compute/internal/cursor"
	"better/compute/internal/id"
	"better/compute/internal/leaktest"
	"better/compute/internal/pki"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

const (
	tenant    = "acme:eu.1"
	machineID = "0123456789abcdef0123456789abcdef"
	serial    = "SN-1"
)

// bundle is a deployment with one account and one pool.
type bundle struct {
	db    *postgres.DB
	owner *postgres.DB
	ca    *pki.CA
	caDir string
	deps  host.Deps
	hosts *host.Service
	pool  string
	admin context.Context
}

func setup(t *testing.T, change ...func(*host.Deps)) *bundle {
	t.Helper()
	caDir := t.TempDir()
	ca, err := pki.Init(caDir, "compute.test")
	if err != nil {
		t.Fatal(err)
	}
	db := pgtest.New(t)
	decider, err := authz.New(db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{
		db: db, owner: pgtest.Owner(t, db), ca: ca, caDir: caDir, pool: id.New("pool"),
		admin: authz.WithActor(t.Context(), authz.Actor{Subject: "user:admin"}),
		deps: host.Deps{
			DB: db, Authz: decider, Cursors: cursor.NewSealer(db), CA: ca, MarkJoined: bootstrap.MarkJoined,
			MarkContested: bootstrap.MarkContested, MarkClockOff: bootstrap.MarkClockOff, Log: slog.New(slog.DiscardHandler),
		},
	}
	for _, c := range change {
		c(&b.deps)
	}
	b.hosts = host.New(b.deps)
	b.exec(t, `INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES ('pacct_1', ?, 'sim', 'a', 'user:admin')`, tenant)
	b.exec(t, `INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'p', 'vps-host', 'bcd')`, b.pool, tenant)
	b.bind(t, "user:admin", "tenant-admin", authz.Tenant(tenant), model.Allow)
	return b
}

func (b *bundle) bind(t *testing.T, subject, role string, on authz.Object, effect model.BindingEffect) {
	t.Helper()
	err := authz.EnsureBindings(t.Context(), b.db, []model.RoleBinding{{Subject: subject, Role: role, Object: on.String(), Effect: effect}})
	if err != nil {
		t.Fatal(err)
	}
}

// exec changes rows as the owner of the tables, since a test makes up what the server may not.
func (b *bundle) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := b.owner.NewRaw(query, args...).Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// count runs a query that gives one number.
func (b *bundle) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	if err := b.db.NewRaw(query, args...).Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// texts runs a query that gives one column of text.
func (b *bundle) texts(t *testing.T, query string, args ...any) []string {
	t.Helper()
	var out []string
	if err := b.db.NewRaw(query, args...).Scan(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// run puts a run in front of its join, and gives its id and token.
func (b *bundle) run(t *testing.T) (bootstrapID, token string) {
	t.Helper()
	bootstrapID = id.New("boot")
	token, hash := host.MintToken(bootstrapID, 1)
	b.exec(t, `INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, operation_id, machine,
			generation, token_hash, token_expires_at)
		VALUES (?0, ?1, 'pacct_1', ?2, 'user:admin', ?0, 'installed', ?0, ?3::jsonb, 1, ?4, now() + interval '15 minutes')`,
		bootstrapID, tenant, b.pool, `{"osMachineId":"`+machineID+`","serial":"`+serial+`"}`, hash)
	b.exec(t, `INSERT INTO machine_reservations (machine_key, bootstrap_id) VALUES (?0, ?0)`, bootstrapID)
	return bootstrapID, token
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func csrFor(t *testing.T, key crypto.Signer, template x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func joinRequest(t *testing.T, token string, key crypto.Signer) host.JoinRequest {
	t.Helper()
	return host.JoinRequest{
		Token: token, CSR: csrFor(t, key, x509.CertificateRequest{}), Clock: clockAt(0), AgentVersion: "1.0",
		Machine: host.Machine{MachineID: machineID, Serial: serial, Hostname: "h", Arch: "amd64", CPUs: 2, MemoryMiB: 2048, Kernel: "6.1"},
	}
}

func clockAt(offset time.Duration) string {
	return time.Now().Add(offset).UTC().Format("2006-01-02T15:04:05.000Z")
}

func leafOf(t *testing.T, certificate string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		t.Fatal("the certificate is not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// reasonOf is details.reason of a refusal.
func reasonOf(err error) any {
	if err == nil {
		return nil
	}
	return problem.From(err).Details["reason"]
}

// age makes the host's certificates so old that they are due to be renewed.
func (b *bundle) age(t *testing.T, hostID string) {
	t.Helper()
	b.exec(t, `UPDATE host_certificates SET issued_at = now() - interval '17 hours', not_after = now() + interval '7 hours' WHERE host_id = ?`, hostID)
}
