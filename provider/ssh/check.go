package ssh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"better/compute/provider"
)

const (
	// maxChecked is how many machines a check logs in on, all at a time. Of more than these it takes some at random.
	maxChecked = 64
	// maxNamed is how many of those that failed are named.
	maxNamed = 10
)

// Check reads every private key and logs in on the machines, each of which must show its pinned host key. It is the only read there is
// that takes the account's credentials. The class of its error is that of the worst that was met.
func (c *client) Check(ctx context.Context) error {
	if err := givenUp(ctx); err != nil {
		return err
	}
	for _, m := range c.oneForEachKey() {
		if _, err := c.signer(ctx, m); err != nil {
			return err
		}
	}
	asked := c.someMachines()
	answers := make([]error, len(asked))
	var logins sync.WaitGroup
	for i, m := range asked {
		logins.Go(func() {
			answers[i] = c.session(ctx, m.ID, c.limits.check, func(*connection) error { return nil })
		})
	}
	logins.Wait()
	return worst(asked, answers)
}

func (c *client) someMachines() []*machine {
	if len(c.machines) <= maxChecked {
		return c.machines
	}
	some := make([]*machine, maxChecked)
	for i, at := range rand.Perm(len(c.machines))[:maxChecked] { //nolint:gosec // nothing hangs on it being hard to guess
		some[i] = c.machines[at]
	}
	return some
}

// gravity sorts what a person should look at first to the end. A machine that is not reached may be back soon.
var gravity = []provider.Class{provider.SSHUnreachable, provider.InvalidConfig, provider.SSHAuth, provider.SSHHostKey}

// worst makes one error of those that the machines answered with.
func worst(asked []*machine, answers []error) error {
	var failed []string
	var gravest *provider.Error
	for i, answer := range answers {
		if answer == nil {
			continue
		}
		failed = append(failed, asked[i].ID)
		e, ok := errors.AsType[*provider.Error](answer)
		if !ok {
			return answer
		}
		if gravest == nil || slices.Index(gravity, e.Class) > slices.Index(gravity, gravest.Class) {
			gravest = e
		}
	}
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return gravest
	}
	names := strings.Join(failed[:min(len(failed), maxNamed)], ", ")
	if more := len(failed) - maxNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return provider.Errorf(gravest.Class, "Of the %d machines that were asked, %d cannot be logged in on: %s. %s",
		len(asked), len(failed), names, gravest.Message).Because(gravest)
}
