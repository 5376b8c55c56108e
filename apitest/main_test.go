// Package apitest holds the whole server to the contract: the real binary as a process, a real PostgreSQL, a simulated cloud whose
// machines run the real agent, and callers that see nothing but HTTP.
//
// It has no code but tests. testdata has one story for each rule; the runner tells each over REST and over GraphQL and compares
// what they answer. The invariant: no secret that a test has planted is in any answer, log line or row that the package sees.
package apitest

import (
	"testing"

	"better/compute/apitest/harness"
)

// programs are the server and the agent.
var programs = &harness.Build{Packages: []string{"./cmd/compute-api", "./cmd/bcd"}, Args: asTests}

func TestMain(m *testing.M) { harness.Main(m, programs) }
