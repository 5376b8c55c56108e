//go:build race

package apitest

// raceEnabled says that the server is built with the race detector too, because the tests are.
const raceEnabled = true
