package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
)

// link is an entry of a tenant's hash chain, and the row that it chains.
type link struct {
	TenantID string `bun:"chain_tenant"`
	Seq      int64  `bun:"seq"`
	AuditID  int64  `bun:"audit_id"`
	XID      string `bun:"chain_xid"`
	Hash     []byte `bun:"hash"`
	Row      logRow `bun:"embed:row_"`
}

// logRow is one of the audit log, each column in the text that is hashed.
type logRow struct {
	ID        string `bun:"id"` // empty where the row is gone
	XID       string `bun:"xid"`
	At        string `bun:"at"` // microseconds since 1970, UTC
	TenantID  string `bun:"tenant_id"`
	Actor     string `bun:"actor"`
	Action    string `bun:"action"`
	Object    string `bun:"object"`
	Outcome   string `bun:"outcome"`
	RequestID string `bun:"request_id"`
	Details   string `bun:"details"` // as PostgreSQL prints jsonb: keys once and in its order, no white space of the writer's
}

// form is the first thing that is hashed: another way to hash gets another name.
const form = "audit-chain-1"

// start is what stands for the hash before the first.
func start() []byte { return make([]byte, sha256.Size) }

// hash is the SHA-256 over the form, the hash before, the tenant, the place and every column, each with its length before it: no
// part passes for one of its neighbours.
func (r *logRow) hash(previous []byte, tenantID string, seq int64) []byte {
	sum := sha256.New()
	for _, part := range []string{
		form, string(previous), tenantID, strconv.FormatInt(seq, 10), r.ID, r.XID, r.At, r.TenantID, r.Actor, r.Action, r.Object,
		r.Outcome, r.RequestID, r.Details,
	} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		sum.Write(length[:])
		sum.Write([]byte(part))
	}
	return sum.Sum(nil)
}

// holds reports whether the entry is what its row gives after the hash before.
func (l *link) holds(previous []byte) bool {
	return l.Row.TenantID == l.TenantID && l.Row.XID == l.XID && bytes.Equal(l.Hash, l.Row.hash(previous, l.TenantID, l.Seq))
}

// Head is the end of a tenant's chain as it was at some time. Kept outside of the database, it shows that what was chained by
// then is still there and still the same.
type Head struct {
	TenantID string `json:"tenant"`
	Seq      int64  `json:"seq"`
	Hash     string `json:"hash"` // SHA-256 in hex
}

func (l *link) head() Head { return Head{l.TenantID, l.Seq, hex.EncodeToString(l.Hash)} }
