//go:build race

package torture

import (
	"time"

	"better/compute/apitest/harness"
)

// How soon is no question of a server that the race detector slows down, beside the tests of other packages: that it happens is.
const (
	firstSuccess = harness.Patience
	settleIn     = harness.Patience - time.Minute
)
