//go:build race

package server

import "time"

// tooDear looks at the memory alone, of which the race detector takes more: how much CPU that takes depends on the machine.
func tooDear(_ time.Duration, allocated uint64) bool { return allocated > 10*maxAllocated }
