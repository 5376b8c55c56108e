// Package e2e shows the main job with nothing in between: the real server as a process, real machines reached over SSH, the real
// agent on them, and the clients that other people wrote watching.
//
// It has no code but tests, which see the server only through its API and its log. The invariant: no test knows how the server is
// made, so each holds for any server that keeps the contract.
package e2e

import (
	"testing"

	"better/compute/apitest/harness"
)

// The server, and the agent as the Makefile builds it.
var (
	serverBuild = &harness.Build{Packages: []string{"./cmd/compute-api"}}
	agentBuild  = &harness.Build{Packages: []string{"./cmd/bcd"}, Env: []string{"CGO_ENABLED=0"}}
)

func TestMain(m *testing.M) { harness.Main(m, serverBuild, agentBuild) }
