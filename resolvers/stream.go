package resolvers

import (
	"context"

	"github.com/99designs/gqlgen/graphql"

	"better/compute/bootstrap"
	"better/compute/model"
)

// relay hands on the changes of a stream, and says why the stream ended when it did not end well.
func relay(ctx context.Context, stream *bootstrap.Stream) <-chan *model.BootstrapStatusChange {
	out := make(chan *model.BootstrapStatusChange)
	go func() {
		defer close(out)
		for change := range stream.Changes {
			select {
			case out <- change:
			case <-ctx.Done(): // the stream ends by the same context
			}
		}
		if err := stream.Err(); err != nil {
			graphql.AddError(ctx, err)
		}
	}()
	return out
}
