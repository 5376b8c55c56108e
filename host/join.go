package host

import (
	"context"
	"crypto"
	"encoding/pem"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/id"
	"better/compute/internal/pki"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Machine is what an agent says of the machine that it runs on. What it could not read is empty.
type Machine struct {
	MachineID string `json:"machineId"`
	Serial    string `json:"serial"`
	Hostname  string `json:"hostname"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"`
	MemoryMiB int64  `json:"memoryMiB"`
	Kernel    string `json:"kernel"`
}

// JoinRequest is an agent's first word. Clock is RFC 3339.
type JoinRequest struct {
	Token        string  `json:"token"`
	CSR          string  `json:"csr"`
	Machine      Machine `json:"machine"`
	Clock        string  `json:"clock"`
	AgentVersion string  `json:"agentVersion"`
}

// JoinResponse makes the agent a host. Certificate and CABundle are PEM.
type JoinResponse struct {
	HostID           string     `json:"hostId"`
	TenantID         string     `json:"tenantId"`
	Certificate      string     `json:"certificate"`
	CABundle         string     `json:"caBundle"`
	NotAfter         model.Time `json:"notAfter"`
	HeartbeatSeconds int        `json:"heartbeatSeconds"`
}

// attempt is a join request that has the right form.
type attempt struct {
	token     string
	tokenHash []byte
	key       crypto.PublicKey
	keyHash   []byte
	clock     time.Time
	machine   Machine
	version   string
}

// errNotTaken says that the token was not there to be taken; explain finds out why.
var errNotTaken = errors.New("the token was not taken")

// Join turns whoever holds the token, on the machine that it was made for, into a host. The same token with the same key gives the
// same certificate again for ten minutes, so that an answer that got lost can be asked for again.
//
// INVALID_INPUT for a request of the wrong form, INVALID_CONFIG without PKI, and otherwise a refusal with details.reason:
// TOKEN_UNKNOWN, TOKEN_EXPIRED, TOKEN_USED, TOKEN_SUPERSEDED (UNAUTHENTICATED), WRONG_MACHINE, CLOCK_SKEW with
// details.skewSeconds (FORBIDDEN), KEY_IN_USE (CONFLICT) or RUN_FAILED (INVALID_STATE).
func (s *Service) Join(ctx context.Context, in JoinRequest) (out *JoinResponse, err error) {
	defer func() { s.countRefusal(err) }()
	if s.ca == nil {
		return nil, problem.New(problem.InvalidConfig, "This server has no PKI, so no host can join.")
	}
	a, err := checkJoin(in)
	if err != nil {
		return nil, err
	}
	var run *takenRun
	err = s.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
		if run, err = takeToken(ctx, tx, a); err != nil {
			return err
		}
		out, err = s.join(ctx, tx, run, a)
		return err
	})
	if errors.Is(err, errNotTaken) {
		return s.explain(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	if s.joined != nil {
		s.joined(ctx, run.BootstrapID)
	}
	return out, nil
}

// join makes the host of a run whose token was just taken in tx.
func (s *Service) join(ctx context.Context, tx bun.Tx, run *takenRun, a *attempt) (*JoinResponse, error) {
	h := &newHost{takenRun: *run, ID: id.New(idPrefix), Machine: a.machine, Version: a.version}
	if err := insertHost(ctx, tx, h); err != nil {
		return nil, err
	}
	signed, err := s.issue(ctx, tx, h.TenantID, h.ID, a.key, a.keyHash)
	if err != nil {
		return nil, err
	}
	if err := s.markJoined(ctx, tx, run.BootstrapID, h.ID); err != nil {
		return nil, err
	}
	err = audit.Record(ctx, tx, audit.Entry{
		TenantID: h.TenantID, Action: joinAction, Object: authz.Pool(h.TenantID, h.PoolID).String(), Outcome: audit.Allowed,
		Details: map[string]any{"hostId": h.ID, "bootstrapId": run.BootstrapID, "serial": signed.Serial},
	})
	if err != nil {
		return nil, err
	}
	return s.welcome(h.TenantID, h.ID, signed.DER, signed.NotAfter), nil
}

// issue signs a certificate for the host and writes it down in the same transaction. A key that is another host's is refused.
func (s *Service) issue(ctx context.Context, tx bun.Tx, tenantID, hostID string, key crypto.PublicKey, keyHash []byte) (*pki.HostCertificate, error) {
	free, err := reserveKey(ctx, tx, hostID, keyHash)
	if err != nil {
		return nil, err
	}
	if !free {
		return nil, refuse(problem.Conflict, "KEY_IN_USE", "The key is another host's; make a new one.")
	}
	signed, err := s.ca.SignHost(pki.HostProfile{
		TenantID: tenantID, HostID: hostID, PublicKey: key, Now: s.now(), Life: s.life,
	})
	if err != nil {
		return nil, err
	}
	return &signed, insertCertificate(ctx, tx, tenantID, hostID, keyHash, &signed)
}

func (s *Service) welcome(tenantID, hostID string, der []byte, notAfter time.Time) *JoinResponse {
	return &JoinResponse{
		HostID: hostID, TenantID: tenantID, Certificate: encodeCertificate(der), CABundle: string(s.ca.Bundle()),
		NotAfter: model.NewTime(notAfter), HeartbeatSeconds: s.heartbeatSeconds(),
	}
}

func encodeCertificate(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

const maxFact = 256

// checkJoin looks at the form only. Of the certificate request nothing but the key is kept.
func checkJoin(in JoinRequest) (*attempt, error) {
	var issues problem.Issues
	clock, err := time.Parse(time.RFC3339Nano, in.Clock)
	if year := clock.UTC().Year(); err != nil || year < 1 || year > 9999 {
		issues.Add("clock", "must be a time in RFC 3339")
	}
	checkFact(&issues, "agentVersion", in.AgentVersion)
	m := in.Machine
	for _, fact := range []struct{ path, text string }{
		{"machine.machineId", m.MachineID},
		{"machine.serial", m.Serial},
		{"machine.hostname", m.Hostname},
		{"machine.arch", m.Arch},
		{"machine.kernel", m.Kernel},
	} {
		checkFact(&issues, fact.path, fact.text)
	}
	if m.CPUs < 0 {
		issues.Add("machine.cpus", "must not be negative")
	}
	if m.MemoryMiB < 0 {
		issues.Add("machine.memoryMiB", "must not be negative")
	}
	if err := issues.Err(); err != nil {
		return nil, err
	}
	key, err := pki.ParseCSR([]byte(in.CSR))
	if err != nil {
		return nil, err
	}
	keyHash, err := pki.KeyHash(key)
	if err != nil {
		return nil, err
	}
	return &attempt{
		token: in.Token, tokenHash: hashToken(in.Token), key: key, keyHash: keyHash, clock: clock, machine: m, version: in.AgentVersion,
	}, nil
}

func checkFact(issues *problem.Issues, path, text string) {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(text) > maxFact || strings.ContainsFunc(text, unprintable) {
		issues.Add(path, "must be at most %d bytes of printable text", maxFact)
	}
}
