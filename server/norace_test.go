//go:build !race

package server

import "time"

// tooDear reports whether a request took more than it may.
func tooDear(cpu time.Duration, allocated uint64) bool {
	return cpu > maxCPU || allocated > maxAllocated
}
