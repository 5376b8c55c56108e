package providertest

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"better/compute/provider"
)

// SpoiltOrder arranges an account of which one request of the next order is spoilt. A driver that orders nothing by requests has no Arrange, and
// a Reason why.
type SpoiltOrder struct {
	Arrange func(t *testing.T, s Spoil) *Account
	Reason  string
}

// Spoil says what becomes of a request.
type Spoil struct {
	// Nth says which, counted from 0. Those that an order asks before its paid call are among them.
	Nth int
	By  Mishap
	// Met is called when the request is there, with whether it is the one that costs money.
	Met func(paid bool)
}

// Mishap is what becomes of a request.
type Mishap string

// The mishaps. The request has its effect where an answer is lost, or half of it.
const (
	NoAnswer   Mishap = "no answer"
	LostAnswer Mishap = "lost answer"
	HalfOfIt   Mishap = "half an answer"
	Garbage    Mishap = "garbage"
)

var mishaps = map[Mishap]Do{NoAnswer: Hang, LostAnswer: AnswerLost, HalfOfIt: HalfAnswer, Garbage: HTML}

// SpoiltBy spoils a request at the faults before a fake.
func (f *Faults) SpoiltBy(s Spoil, isOrder func(*http.Request) bool) {
	nth := s.Nth
	f.Add(Fault{
		Match: func(*http.Request) bool { nth--; return nth < 0 },
		Do: func(w http.ResponseWriter, r *http.Request, fake http.Handler) {
			s.Met(isOrder(r))
			mishaps[s.By](w, r, fake)
		},
	})
}

// Spoilt is an account whose orders are spoilt. Choose an offer that the driver has to look for.
func (r *Rig[F]) Spoilt(isOrder func(*http.Request) bool, o Options[F]) SpoiltOrder {
	return SpoiltOrder{Arrange: func(t *testing.T, s Spoil) *Account {
		t.Helper()
		b := r.Bench(t, o)
		b.Faults.SpoiltBy(s, isOrder)
		return b.Account
	}}
}

// testSpoiltOrders spoils each request of an order in turn. Of the paid call nobody may say that it had no effect; of what goes before it nobody may
// say that something may have been ordered, or a person has to be asked for nothing.
func testSpoiltOrders(t *testing.T, s SpoiltOrder) {
	t.Parallel()
	if s.Arrange == nil {
		if s.Reason == "" {
			t.Fatal("the situation is neither arranged nor is there a reason why not")
		}
		t.Skip(s.Reason)
	}
	for by := range mishaps {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			paid := 0
			for nth := 0; ; nth++ {
				met, isPaid := spoiltOrder(t, s, nth, by)
				if !met {
					break
				}
				if isPaid {
					paid++
				}
			}
			if paid != 1 {
				t.Errorf("%d of the requests of an order were paid calls", paid)
			}
		})
	}
}

func spoiltOrder(t *testing.T, s SpoiltOrder, nth int, by Mishap) (met, paid bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(limit(t))
	defer cancel()
	var wasMet, wasPaid atomic.Bool
	a := s.Arrange(t, Spoil{Nth: nth, By: by, Met: func(isPaid bool) {
		wasPaid.Store(isPaid)
		wasMet.Store(true)
		if by == NoAnswer {
			cancel() // in place of waiting for the end of the time
		}
	}})
	id := operation(t, "a")
	_, err := orderer(t, a).Order(ctx, provider.Order{OperationID: id, OfferID: a.OfferID})
	_ = a.Client.Close()
	met, paid = wasMet.Load(), wasPaid.Load()
	switch {
	case !met && err != nil:
		t.Fatalf("an order that nothing happened to: %v", err)
	case paid:
		failed(t, a, "the paid call", err, provider.UnknownOutcome)
	case met && err == nil: // what changes nothing may be asked twice
		if n := a.Sold(id); n != 1 {
			t.Errorf("the order did not mind what became of request %d, and %d machines were sold", nth, n)
		}
	case met:
		// Fatal, where the vendor refuses an order since what it needs is not there.
		failed(t, a, "what goes before the paid call", err, provider.Unavailable, provider.Fatal)
		if n := a.Sold(id); n != 0 {
			t.Errorf("request %d is no paid call, and %d machines were sold", nth, n)
		}
	}
	return met, paid
}
