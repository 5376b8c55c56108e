package providertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/provider"
)

// SentOnceIn is what a client has time for in SentOnce, where one request gets no answer and those before it have to be in time.
const SentOnceIn = 5 * time.Second

// SentOnce has an order fail in every way that makes an SDK try again, and counts how often it is sent: once, or a machine may be paid twice.
// Requests that are no order are the fake's to answer. Client opens a client on the URL, whose requests take SentOnceIn at most.
func SentOnce(t *testing.T, isOrder func(*http.Request) bool, offerID string, fake http.Handler, client func(url string) provider.Client) {
	t.Helper()
	for name, do := range map[string]Do{
		"408": Reply(http.StatusRequestTimeout, `{}`), "409": Reply(http.StatusConflict, `{}`), "423": Reply(http.StatusLocked, `{}`), "425": Reply(http.StatusTooEarly, `{}`),
		"429": Reply(http.StatusTooManyRequests, `{}`), "429 in no time": Reply(http.StatusTooManyRequests, `{}`, "Retry-After", "0"),
		"500": Reply(http.StatusInternalServerError, `{}`), "502": Reply(http.StatusBadGateway, `{}`), "503": Reply(http.StatusServiceUnavailable, `{}`),
		"503 in no time": Reply(http.StatusServiceUnavailable, `{}`, "Retry-After", "0"), "504": Reply(http.StatusGatewayTimeout, `{}`),
		"no answer": Hang, "a lost answer": AnswerLost, "half an answer": HalfAnswer, "HTML": HTML,
		"a connection that ends": func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		},
	} {
		var sent atomic.Int64
		faults := NewFaults(fake)
		faults.Add(Fault{Match: isOrder, Always: true, Do: func(w http.ResponseWriter, r *http.Request, fake http.Handler) {
			sent.Add(1)
			do(w, r, fake)
		}})
		server := httptest.NewServer(faults)
		c := client(server.URL)
		o, ok := c.(provider.Orderer)
		if !ok {
			t.Fatal("the driver orders nothing")
		}
		_, err := o.Order(limit(t), provider.Order{OperationID: mutantOperation, OfferID: offerID})
		if n := sent.Load(); n != 1 || err == nil {
			t.Errorf("%s: the order was sent %d times, and ends with %v", name, n, err)
		}
		_ = c.Close()
		server.Close()
	}
}
