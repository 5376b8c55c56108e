package host

import (
	"bytes"
	"context"

	"github.com/uptrace/bun"

	"better/compute/audit"
	"better/compute/authz"
	"better/compute/internal/pki"
	"better/compute/internal/problem"
	"better/compute/model"
)

// Peer is a host as its verified client certificate names it. Whether it is still trusted is for each call to find out.
type Peer struct {
	TenantID, HostID, Serial string
}

// HeartbeatRequest is what an agent reports. Clock is for people who look at the traffic: nothing is decided by it.
type HeartbeatRequest struct {
	AgentVersion  string `json:"agentVersion"`
	Clock         string `json:"clock"`
	UptimeSeconds int64  `json:"uptimeSeconds"`
}

// HeartbeatResponse tells the agent when to report again, and whether to renew its certificate now.
type HeartbeatResponse struct {
	HeartbeatSeconds int  `json:"heartbeatSeconds"`
	Renew            bool `json:"renew"`
}

// RenewRequest asks for the next certificate.
type RenewRequest struct {
	CSR string `json:"csr"`
}

// RenewResponse is the next certificate. Certificate and CABundle are PEM.
type RenewResponse struct {
	Certificate string     `json:"certificate"`
	CABundle    string     `json:"caBundle"`
	NotAfter    model.Time `json:"notAfter"`
}

// Heartbeat notes that the host is alive. A host speaks for itself only, so there is nothing else to decide. FORBIDDEN with
// details.reason HOST_REMOVED when it is not trusted any more; INVALID_INPUT; idempotent.
func (s *Service) Heartbeat(ctx context.Context, p Peer, in HeartbeatRequest) (*HeartbeatResponse, error) {
	var issues problem.Issues
	checkFact(&issues, "agentVersion", in.AgentVersion)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	renew, trusted, err := touch(ctx, s.db.DB, p, in.AgentVersion)
	if err != nil {
		return nil, err
	}
	if !trusted {
		return nil, removedError()
	}
	return &HeartbeatResponse{HeartbeatSeconds: s.heartbeatSeconds(), Renew: renew}, nil
}

// Renew signs the host's next certificate; the ones before it stay valid until they end. During the first half of the newest one's life
// that one is given again, to the same key, so that a host cannot have any number of them: another key is RATE_LIMITED. FORBIDDEN
// with details.reason HOST_REMOVED when the host is not trusted any more, CONFLICT with KEY_IN_USE for another host's key, INVALID_INPUT.
func (s *Service) Renew(ctx context.Context, p Peer, in RenewRequest) (*RenewResponse, error) {
	key, err := pki.ParseCSR([]byte(in.CSR))
	if err != nil {
		return nil, err
	}
	keyHash, err := pki.KeyHash(key)
	if err != nil {
		return nil, err
	}
	var signed *pki.HostCertificate
	err = s.db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		poolID, err := lockTrusted(ctx, tx, p)
		if err != nil {
			return err
		}
		if poolID == "" {
			return removedError()
		}
		young, err := findYoungCertificate(ctx, tx, p.HostID)
		switch {
		case err != nil:
			return err
		case young != nil && bytes.Equal(young.KeyHash, keyHash):
			signed = &pki.HostCertificate{DER: young.Certificate, NotAfter: young.NotAfter}
			return nil
		case young != nil:
			return problem.New(problem.RateLimited, "The host's certificate is too young to be replaced.").
				With("retryAfterSeconds", young.Seconds)
		}
		if signed, err = s.issue(ctx, tx, p.TenantID, p.HostID, key, keyHash); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			TenantID: p.TenantID, Action: renewAction, Object: authz.Pool(p.TenantID, poolID).String(), Outcome: audit.Allowed,
			Details: map[string]any{"hostId": p.HostID, "serial": signed.Serial},
		})
	})
	if err != nil {
		return nil, err
	}
	return &RenewResponse{
		Certificate: encodeCertificate(signed.DER), CABundle: string(s.ca.Bundle()), NotAfter: model.NewTime(signed.NotAfter),
	}, nil
}
