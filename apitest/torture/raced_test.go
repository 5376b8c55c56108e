//go:build race

package torture

import "time"

// firstSuccess is generous where all is slowed down.
const firstSuccess = 20 * time.Second
