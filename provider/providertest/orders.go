package providertest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// found waits until the operation's claim is there in the state, and checks it.
func found(t *testing.T, o provider.Orderer, id string, state provider.ClaimState) *provider.Claim {
	t.Helper()
	var claim *provider.Claim
	await(t, "the claim of "+id, func() bool {
		var err error
		if claim, err = o.FindClaim(limit(t), id); err != nil {
			t.Fatalf("find claim: %v", err)
		}
		return claim != nil && claim.State == state
	})
	if state == provider.ClaimReady && !idPattern.MatchString(claim.MachineID) {
		t.Errorf("machine id %q", claim.MachineID)
	}
	return claim
}

// repeatable reports whether a driver of that claim mode brings one machine to an operation that orders again. With any other nobody may.
func repeatable(m model.ClaimMode) bool { return m != model.ClaimLabel && m != model.ClaimNone }

// testOrder buys for one operation, twice where that may be, once for another, and gives back twice.
func testOrder(t *testing.T, mode model.ClaimMode, a *Account) {
	o := orderer(t, a)
	id, other := operation(t, "a"), operation(t, "b")
	if claim, err := o.FindClaim(limit(t), id); claim != nil || err != nil {
		t.Fatalf("before the order: %+v, %v", claim, err)
	}
	order := provider.Order{OperationID: id, OfferID: a.OfferID}
	claim, err := o.Order(limit(t), order)
	if err != nil {
		t.Fatalf("order: %v", err)
	}
	if claim.State != provider.ClaimPending && claim.State != provider.ClaimReady || claim.Err != nil {
		t.Errorf("claim %+v", claim)
	}
	ready := found(t, o, id, provider.ClaimReady)
	if claim.MachineID != "" && claim.MachineID != ready.MachineID {
		t.Errorf("the order named machine %s, and the claim has %s", claim.MachineID, ready.MachineID)
	}

	if repeatable(mode) {
		if _, err = o.Order(limit(t), order); err != nil {
			failed(t, a, "second order", err, provider.UnknownOutcome, provider.Conflict)
		}
	}
	if n := a.Sold(id); n != 1 {
		t.Fatalf("%d machines were sold to one operation", n)
	}
	if again := found(t, o, id, provider.ClaimReady); again.MachineID != ready.MachineID {
		t.Errorf("the claim has machine %s, and had %s", again.MachineID, ready.MachineID)
	}
	if _, err := o.Order(limit(t), provider.Order{OperationID: other, OfferID: a.OfferID}); err != nil {
		t.Fatalf("order of another operation: %v", err)
	}
	if second := found(t, o, other, provider.ClaimReady); second.MachineID == ready.MachineID {
		t.Errorf("two operations have machine %s", ready.MachineID)
	}
	if got := machines(t, a)[ready.MachineID]; got == nil {
		t.Errorf("machine %s is not listed", ready.MachineID)
	}

	for range 2 {
		if err := o.Release(limit(t), id, ready.MachineID); err != nil {
			t.Fatalf("release: %v", err)
		}
	}
	await(t, "the release", func() bool { return a.Sold(id) == 0 })
	if n := a.Sold(other); n != 1 {
		t.Errorf("the other operation has %d machines", n)
	}
	if repeatable(mode) {
		testConcurrentOrders(t, a, o)
	}
}

// testConcurrentOrders buys for one operation from many sides: at most one machine, whatever each is told.
func testConcurrentOrders(t *testing.T, a *Account, o provider.Orderer) {
	t.Helper()
	id := operation(t, "c")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { _, _ = o.Order(limit(t), provider.Order{OperationID: id, OfferID: a.OfferID}) })
	}
	group.Wait()
	found(t, o, id, provider.ClaimReady)
	if n := a.Sold(id); n != 1 {
		t.Errorf("%d machines were sold to one operation", n)
	}
}

// testClaims wants a driver that tells of all operations to tell of each that has a machine, and of none that gave it back.
func testClaims(t *testing.T, a *Account) {
	o, ok := a.Client.(provider.Claimant)
	if !ok {
		t.Skip("the driver does not list claims")
	}
	id := "bcd-" + strings.Repeat("0", 52)
	carried := func() (machineIDs []string) {
		claims, err := o.Claims(limit(t))
		if err != nil {
			t.Fatalf("claims: %v", err)
		}
		for _, c := range claims {
			if !provider.IsOperationID(c.OperationID) || !idPattern.MatchString(c.MachineID) {
				t.Errorf("the claim %+v", c)
			}
			if c.OperationID == id {
				machineIDs = append(machineIDs, c.MachineID)
			}
		}
		return machineIDs
	}
	if got := carried(); len(got) != 0 {
		t.Errorf("before the order: %v", got)
	}
	if _, err := o.Order(limit(t), provider.Order{OperationID: id, OfferID: a.OfferID}); err != nil {
		t.Fatalf("order: %v", err)
	}
	machineID := found(t, o, id, provider.ClaimReady).MachineID
	await(t, "the claim in the list", func() bool { return slices.Equal(carried(), []string{machineID}) })
	if err := o.Release(limit(t), id, machineID); err != nil {
		t.Fatalf("release: %v", err)
	}
	await(t, "the end of the claim", func() bool { return len(carried()) == 0 })
}

func testReleaseOfAnothers(t *testing.T, a *Account) {
	o := orderer(t, a)
	id := operation(t, "a")
	if _, err := o.Order(limit(t), provider.Order{OperationID: id, OfferID: a.OfferID}); err != nil {
		t.Fatalf("order: %v", err)
	}
	claim := found(t, o, id, provider.ClaimReady)
	if err := o.Release(limit(t), operation(t, "b"), claim.MachineID); err == nil {
		t.Error("released by another operation")
	}
	if n := a.Sold(id); n != 1 {
		t.Errorf("the operation has %d machines", n)
	}
	if a.MachineID == "" {
		return
	}
	if err := o.Release(limit(t), id, a.MachineID); err == nil {
		t.Error("released a machine that no operation has ordered")
	}
	if machines(t, a)[a.MachineID] == nil {
		t.Errorf("machine %s is gone", a.MachineID)
	}
}

// testUnknownOutcome places an order whose answer does not say what became of it; the provider sold this many machines.
func testUnknownOutcome(sold int) func(*testing.T, *Account) {
	return func(t *testing.T, a *Account) {
		o := orderer(t, a)
		id := operation(t, "a")
		_, err := o.Order(limit(t), provider.Order{OperationID: id, OfferID: a.OfferID})
		failed(t, a, "order", err, provider.UnknownOutcome)
		if n := a.Sold(id); n != sold {
			t.Fatalf("%d machines were sold, want %d", n, sold)
		}
		if sold == 1 {
			found(t, o, id, provider.ClaimReady)
			return
		}
		if claim, err := o.FindClaim(limit(t), id); claim != nil || err != nil {
			t.Errorf("claim %+v, %v", claim, err)
		}
	}
}

// testRefusedOrder places an order that is refused, at once or later.
func testRefusedOrder(class provider.Class) func(*testing.T, *Account) {
	return func(t *testing.T, a *Account) {
		o := orderer(t, a)
		id := operation(t, "a")
		_, err := o.Order(limit(t), provider.Order{OperationID: id, OfferID: a.OfferID})
		if err == nil {
			claim := found(t, o, id, provider.ClaimFailed)
			if claim.Err == nil || claim.Err.Class != class {
				t.Errorf("claim %+v, want class %s", claim, class)
			}
			return
		}
		failed(t, a, "order", err, class)
		if n := a.Sold(id); n != 0 {
			t.Errorf("%d machines were sold", n)
		}
	}
}

func testUnauthorized(t *testing.T, a *Account) {
	failed(t, a, "check", a.Client.Check(limit(t)), provider.Auth)
	_, err := a.Client.Offers(limit(t))
	failed(t, a, "offers", err, provider.Auth)
	_, err = a.Client.Machines(limit(t))
	failed(t, a, "machines", err, provider.Auth)
	if o, ok := a.Client.(provider.Orderer); ok {
		_, err = o.Order(limit(t), provider.Order{OperationID: operation(t, "a"), OfferID: a.OfferID})
		failed(t, a, "order", err, provider.Auth)
		_, err = o.FindClaim(limit(t), operation(t, "a"))
		failed(t, a, "find claim", err, provider.Auth)
	}
}

func testCheckFails(class provider.Class) func(*testing.T, *Account) {
	return func(t *testing.T, a *Account) {
		failed(t, a, "check", a.Client.Check(limit(t)), class)
	}
}

func testRateLimited(after time.Duration) func(*testing.T, *Account) {
	return func(t *testing.T, a *Account) {
		e := failed(t, a, "check", a.Client.Check(limit(t)), provider.RateLimited)
		if e.RetryAfter != after {
			t.Errorf("retry after %v, want %v", e.RetryAfter, after)
		}
	}
}

func testDown(t *testing.T, a *Account) {
	failed(t, a, "check", a.Client.Check(limit(t)), provider.Unavailable, provider.Timeout)
	_, err := a.Client.Offers(limit(t))
	failed(t, a, "offers", err, provider.Unavailable, provider.Timeout)
	if o, ok := a.Client.(provider.Orderer); ok {
		_, err = o.FindClaim(limit(t), operation(t, "a"))
		failed(t, a, "find claim", err, provider.Unavailable, provider.Timeout)
		_, err = o.Order(limit(t), provider.Order{OperationID: operation(t, "a"), OfferID: a.OfferID})
		failed(t, a, "order", err, provider.UnknownOutcome, provider.Unavailable, provider.Timeout)
	}
}

func testGarbage(t *testing.T, a *Account) {
	_, err := a.Client.Offers(limit(t))
	failed(t, a, "offers", err, provider.InvalidResponse)
}
