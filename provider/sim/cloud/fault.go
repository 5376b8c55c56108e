package cloud

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The kinds of faults. "Before" means that the request had no effect, "after" that it had it all.
const (
	FaultHang          = "hang"        // before: no answer until the client goes, or Delay is over and the connection ends
	FaultHangAfter     = "hang_after"  // the same, after
	FaultReset         = "reset"       // before: the connection is reset
	FaultResetAfter    = "reset_after" // the same, after
	Fault500Before     = "500_before"
	Fault500After      = "500_after"
	Fault503           = "503"
	FaultSlowBody      = "slow_body"  // after: the answer trickles out over Delay
	FaultDuplicate     = "duplicate"  // the request is delivered twice, the second answer is given
	FaultHalfJSON      = "half_json"  // after: the first half of the answer, as if it were all
	FaultHTML          = "html"       // after: a page of HTML with status 200
	FaultWrongID       = "wrong_id"   // after: ids in the answer are those of no machine
	FaultExtraFields   = "extra"      // after: every object of the answer has fields that nobody knows
	FaultClockOff      = "clock_off"  // after: Date and createdAt are Delay ahead (or behind)
	FaultEmptyLastPage = "empty_page" // after: a list's last page names one more, which is empty
	FaultRepeatedPage  = "same_page"  // after: a list's page names itself as the next one
	FaultUnauthorized  = "401"
	FaultForbidden     = "403"
	Fault429           = "429"
	Fault429RetryAfter = "429_retry_after" // Retry-After: Delay, in seconds
	FaultQuota         = "quota"
	FaultPayment       = "payment"
	FaultOutOfStock    = "out_of_stock"
	FaultOfferGone     = "offer_gone"
	FaultLateListing   = "late_listing"  // an order: the machine is missing from lists for Delay
	FaultLostLabel     = "lost_label"    // an order: the machine comes without its labels; where there are none, under another name
	FaultLostOrder     = "lost_order"    // an order: the same, and the connection is reset after
	FaultNeverReady    = "never_ready"   // an order: the machine stays pending
	FaultInstallFails  = "install_fails" // an install: ends with exit code 1
	FaultInstallHangs  = "install_hangs" // an install: never ends
)

// refusals are the faults that a handler never sees: the request is answered with an error and has no effect. Those that the
// cloud also has reasons of its own for use the same answers.
var refusals = map[string]*apiError{
	Fault500Before:     refusal(http.StatusInternalServerError, "internal_error", "something went wrong"),
	Fault503:           refusal(http.StatusServiceUnavailable, "maintenance", "the cloud is under maintenance"),
	FaultUnauthorized:  refusal(http.StatusUnauthorized, "unauthorized", "the API token is not valid"),
	FaultForbidden:     refusal(http.StatusForbidden, "forbidden", "the API token may only read"),
	Fault429:           refusal(http.StatusTooManyRequests, "rate_limited", "too many requests"),
	Fault429RetryAfter: refusal(http.StatusTooManyRequests, "rate_limited", "too many requests"),
	FaultQuota:         refusal(http.StatusForbidden, "quota_exceeded", "the project has all the machines that it may have"),
	FaultPayment:       refusal(http.StatusPaymentRequired, "payment_required", "the last invoice is open"),
	FaultOutOfStock:    refusal(http.StatusConflict, "out_of_stock", "none of this offer is in stock"),
	FaultOfferGone:     refusal(http.StatusNotFound, "offer_not_found", "the offer does not exist"),
}

// faultKinds lists the kinds that are not refusals.
var faultKinds = []string{
	FaultHang, FaultHangAfter, FaultReset, FaultResetAfter, Fault500After, FaultSlowBody, FaultDuplicate, FaultHalfJSON, FaultHTML,
	FaultWrongID, FaultExtraFields, FaultClockOff, FaultEmptyLastPage, FaultRepeatedPage, FaultLateListing, FaultLostLabel,
	FaultLostOrder, FaultNeverReady, FaultInstallFails, FaultInstallHangs,
}

// Fault is one rule of the fault script: it spoils Count requests that match, from the Nth matching one on.
type Fault struct {
	Match Match  `json:"match"`
	Kind  string `json:"kind"`
	Count int    `json:"count"` // 0: one; below 0: every one
	Delay string `json:"delay"` // a Go duration, where the kind has one

	seen, applied int
	duration      time.Duration
}

// Match says which requests a fault is for. What is left out matches all.
type Match struct {
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`  // a prefix
	Nth    int    `json:"nth,omitempty"`   // 0: the first
	Token  string `json:"token,omitempty"` // of one project only; kept as its hash
}

func (f *Fault) kind() string {
	if f == nil {
		return ""
	}
	return f.Kind
}

func (f *Fault) delay(fallback time.Duration) time.Duration {
	if f.duration == 0 {
		return fallback
	}
	return f.duration
}

func (f *Fault) check() error {
	if refusals[f.Kind] == nil && !slices.Contains(faultKinds, f.Kind) {
		return invalid("unknown kind %q", f.Kind)
	}
	if f.Delay == "" {
		return nil
	}
	var err error
	if f.duration, err = time.ParseDuration(f.Delay); err != nil {
		return invalid("delay %q is not a duration", f.Delay)
	}
	return nil
}

// faultScript is what the cloud was told to do wrong. It is not kept over a restart.
type faultScript struct {
	mu    sync.Mutex
	rules []*Fault
}

func (s *faultScript) add(rules []*Fault) error {
	for _, f := range rules {
		if err := f.check(); err != nil {
			return err
		}
		if f.Match.Token != "" {
			f.Match.Token = hashToken(f.Match.Token)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rules...)
	return nil
}

func (s *faultScript) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// take counts a request against every rule and gives a copy of the first that applies to it.
func (s *faultScript) take(method, path, project string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var taken *Fault
	for _, f := range s.rules {
		if f.Match.Method != "" && f.Match.Method != method || !strings.HasPrefix(path, f.Match.Path) ||
			f.Match.Token != "" && f.Match.Token != project {
			continue
		}
		f.seen++
		if taken != nil || f.seen < f.Match.Nth || f.Count >= 0 && f.applied >= max(f.Count, 1) {
			continue
		}
		f.applied++
		rule := *f
		taken = &rule
	}
	return taken
}

// before applies what happens instead of the request, and reports whether anything did.
func (c *Cloud) before(w http.ResponseWriter, call *call) bool {
	switch f := call.fault; f.kind() {
	case FaultHang:
		c.hang(call)
	case FaultReset:
		reset(w)
	default:
		refused := refusals[f.kind()]
		if refused == nil {
			return false
		}
		if f.Kind == Fault429RetryAfter {
			w.Header().Set("Retry-After", strconv.Itoa(int(f.delay(time.Second).Seconds())))
		}
		call.write(w, refused.status, refused.body(call.requestID))
	}
	return true
}

// after spoils the answer to a request that had its effect.
func (c *Cloud) after(w http.ResponseWriter, call *call, status int, body []byte) {
	switch f := call.fault; f.kind() {
	case FaultHangAfter:
		c.hang(call)
	case FaultResetAfter, FaultLostOrder:
		reset(w)
	case Fault500After:
		call.write(w, http.StatusInternalServerError, refusals[Fault500Before].body(call.requestID))
	case FaultSlowBody:
		call.writeHead(w, status, len(body))
		c.trickle(w, call, body)
	case FaultHalfJSON:
		call.write(w, status, body[:len(body)/2])
	case FaultHTML:
		w.Header().Set("Content-Type", "text/html")
		call.write(w, http.StatusOK, []byte("<!doctype html><title>Just a moment</title>"))
	case FaultClockOff:
		w.Header().Set("Date", c.options.Now().Add(f.duration).UTC().Format(http.TimeFormat))
		call.write(w, status, spoil(body, f.spoilObject))
	case FaultWrongID, FaultExtraFields, FaultEmptyLastPage, FaultRepeatedPage:
		call.write(w, status, spoil(body, f.spoilObject))
	default:
		call.write(w, status, body)
	}
}

// spoilObject changes one JSON object of an answer.
func (f *Fault) spoilObject(o map[string]any) {
	page, listed := o["page"].(json.Number)
	_, machine := o["osMachineId"]
	switch {
	case f.Kind == FaultWrongID && machine:
		o["id"] = "m-ffffffffffffffff"
	case f.Kind == FaultExtraFields:
		o["x_future"] = map[string]any{"level": 1, "of": []any{"a", nil}}
	case f.Kind == FaultClockOff && machine:
		text, _ := o["createdAt"].(string)
		if created, err := time.Parse(time.RFC3339Nano, text); err == nil {
			o["createdAt"] = created.Add(f.duration)
		}
	case f.Kind == FaultRepeatedPage && listed:
		o["nextPage"] = page
	case f.Kind == FaultEmptyLastPage && listed && o["nextPage"] == nil && len(listOf(o)) > 0:
		n, _ := page.Int64()
		o["nextPage"] = n + 1
	}
}

// listOf is the list on a page.
func listOf(page map[string]any) []any {
	if offers, ok := page["offers"].([]any); ok {
		return offers
	}
	machines, _ := page["machines"].([]any)
	return machines
}

// spoil applies change to every object in a JSON document.
func spoil(body []byte, change func(map[string]any)) []byte {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return body
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, child := range v {
				if name != "labels" { // a map of the caller's own words, not an object with fields
					walk(child)
				}
			}
			change(v)
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(document)
	changed, err := json.Marshal(document)
	if err != nil {
		return body
	}
	return changed
}

// hang keeps the client waiting until it goes, the delay is over or the cloud closes; then the connection ends.
func (c *Cloud) hang(call *call) {
	select {
	case <-call.r.Context().Done():
	case <-c.life.Done():
	case <-time.After(call.fault.delay(time.Hour)):
	}
	panic(http.ErrAbortHandler)
}

// reset makes the client see a connection reset rather than an end of file.
func reset(w http.ResponseWriter) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}

func (c *Cloud) trickle(w http.ResponseWriter, call *call, body []byte) {
	pause := call.fault.delay(time.Second) / time.Duration(max(len(body), 1))
	for i := range body {
		select {
		case <-call.r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-c.life.Done():
			panic(http.ErrAbortHandler)
		case <-time.After(pause):
		}
		if _, err := w.Write(body[i : i+1]); err != nil {
			panic(http.ErrAbortHandler)
		}
		_ = http.NewResponseController(w).Flush()
	}
}
