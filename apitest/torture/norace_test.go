//go:build !race

package torture

import "time"

// firstSuccess is how soon after the database is back a write has to be acknowledged.
const firstSuccess = 2 * time.Second
