//go:build !race

package apitest

import "time"

var asTests []string

// tooDear reports whether a refusal took more than it may, on a machine that is so many times as slow as it can be.
func tooDear(cpu time.Duration, allocated int64, busy float64) bool {
	return float64(cpu) > busy*float64(refusalCPU) || allocated > refusalBytes
}
