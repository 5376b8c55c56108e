// Package identity holds the server to what it promises about credentials: a real OpenID Connect provider, two replicas, and callers
// over every transport.
//
// It has no code but tests. The invariant: what each test waits for comes from the outside, an answer, an event or the end of a
// stream.
package identity

import (
	"testing"
	"time"

	"better/compute/apitest/harness"
)

// shortLife is that of a credential whose end a test waits for: long enough to open streams with it on this machine, which doing so once shows.
func shortLife(open func()) time.Duration {
	began := time.Now()
	open()
	return (8*time.Second + 5*time.Since(began)).Round(time.Second)
}

var (
	servers   = &harness.Build{Packages: []string{"./cmd/compute-api"}}
	providers = &harness.Build{Module: "apitest/identity/provider", Packages: []string{"."}}
)

func TestMain(m *testing.M) { harness.Main(m, servers, providers) }
