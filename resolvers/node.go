package resolvers

import (
	"context"
	"strings"

	"better/compute/model"
)

// node picks the noun by the id's prefix. Whether the caller may read the object is the service's to decide: it gives nil for
// what is not there or not readable.
func (r *Resolver) node(ctx context.Context, id string) (model.Node, error) {
	prefix, _, _ := strings.Cut(id, "_")
	switch prefix {
	case "pacct":
		return found(r.Accounts.Node(ctx, id))
	case "pool":
		return found(r.Pools.Node(ctx, id))
	case "boot":
		return found(r.Bootstraps.Node(ctx, id))
	case "host":
		return found(r.Hosts.Node(ctx, id))
	default:
		return nil, nil
	}
}

// found keeps a nil pointer from becoming a Node that is not nil.
func found[T any, P interface {
	*T
	model.Node
}](object P, err error) (model.Node, error) {
	if object == nil || err != nil {
		return nil, err
	}
	return object, nil
}
