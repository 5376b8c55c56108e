//go:build !race

package torture

import "time"

const (
	// firstSuccess is how soon after the database is back a write has to be acknowledged.
	firstSuccess = 2 * time.Second

	// settleIn is how soon after the last fault every run has to be final.
	settleIn = time.Minute
)
