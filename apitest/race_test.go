//go:build race

package apitest

// asTests has the programs built with the race detector, because the tests are.
var asTests = []string{"-race"}
