//go:build race

package apitest

import "time"

// asTests has the programs built with the race detector, because the tests are.
var asTests = []string{"-race"}

// tooDear looks at the memory alone, of which the race detector takes more: how much CPU that takes depends on the machine.
func tooDear(_ time.Duration, allocated int64, _ float64) bool { return allocated > 10*refusalBytes }
