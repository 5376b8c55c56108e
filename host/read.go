package host

import (
	"context"
	"strconv"

	"better/compute/authz"
	"better/compute/internal/cursor"
	"better/compute/internal/id"
	"better/compute/internal/input"
	"better/compute/internal/problem"
	"better/compute/model"
)

// GetInput names a host.
type GetInput struct {
	TenantID string `json:"tenantId"`
	HostID   string `json:"hostId"`
}

// PageInput asks for one page of a pool's hosts.
type PageInput struct {
	TenantID       string  `json:"tenantId"`
	PoolID         string  `json:"poolId"`
	IncludeRemoved *bool   `json:"includeRemoved"` // nil: false
	First          *int    `json:"first"`          // 1 to 100; nil: 50
	After          *string `json:"after"`
}

// Get gives the host to a caller who holds compute:pools:read on its pool. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, or NOT_FOUND
// also for another tenant's.
func (s *Service) Get(ctx context.Context, in GetInput) (*model.Host, error) {
	return s.admitted(ctx, in, model.PoolsRead)
}

// admitted reads a host for a caller who may do that to it. The right is judged on the pool, which the caller does not name: so a host
// that is not there, or whose pool the caller may not touch, gets the answer that the tenant gets, and nobody learns which hosts exist,
// nor in which pool. Only when that is yes, it is NOT_FOUND.
func (s *Service) admitted(ctx context.Context, in GetInput, p authz.Permission) (*model.Host, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	input.ID(&issues, "hostId", idPrefix, in.HostID)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	h, err := selectHost(ctx, s.db.DB, in.TenantID, in.HostID)
	if err == nil {
		held, err := s.authz.Holds(ctx, p, authz.Pool(h.TenantID, h.PoolID))
		if held || err != nil {
			return h, err
		}
	} else if !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	if err := s.authz.Check(ctx, p, authz.Tenant(in.TenantID)); err != nil {
		return nil, err
	}
	return nil, notFound()
}

// Page gives the pool's hosts, newest first, to a caller who holds compute:pools:read on it; a pool that is not there has none.
// UNAUTHENTICATED, INVALID_INPUT or FORBIDDEN.
func (s *Service) Page(ctx context.Context, in PageInput) (*model.HostConnection, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	removed := in.IncludeRemoved != nil && *in.IncludeRemoved
	list, err := s.cursors.List(ctx, "Pool.hosts", in.TenantID, in.PoolID, strconv.FormatBool(removed))
	if err != nil {
		return nil, err
	}
	var issues problem.Issues
	input.Tenant(&issues, in.TenantID)
	input.ID(&issues, "poolId", poolPrefix, in.PoolID)
	p := input.CheckPage(&issues, in.First, in.After, cursor.Decode[string](list))
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if err := s.authz.Check(ctx, model.PoolsRead, authz.Pool(in.TenantID, in.PoolID)); err != nil {
		return nil, err
	}
	hosts, err := selectHosts(ctx, s.db.DB, in.TenantID, in.PoolID, removed, p)
	if err != nil {
		return nil, err
	}
	return model.NewConnection(hosts, p.First, p.After, cursor.Encode(list, placeOf)), nil
}

// Node gives the host of that id, whichever tenant's it is, to a caller who holds compute:pools:read on its pool; nil when it is
// not there, not readable or no host's id. UNAUTHENTICATED or UNAVAILABLE.
func (s *Service) Node(ctx context.Context, hostID string) (*model.Host, error) {
	if _, err := s.authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	if !id.Valid(idPrefix, hostID) {
		return nil, nil
	}
	h, err := oneHost(ctx, s.db.DB, `SELECT `+columns+` FROM hosts h WHERE h.id = ?`, hostID)
	if problem.Is(err, problem.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if held, err := s.authz.Holds(ctx, model.PoolsRead, authz.Pool(h.TenantID, h.PoolID)); !held {
		return nil, err
	}
	return h, nil
}

// placeOf is the place of a host in its pool's list.
func placeOf(h *model.Host) (hostID string) { return h.ID }
