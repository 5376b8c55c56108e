package cloud_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"better/compute/provider/sim/cloud"
)

// TestOrderFaults gives one order each fault and checks what the client saw, and what the cloud did.
func TestOrderFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind, delay string
		status      int    // 0: no answer
		code        string // of the error
		sold        int
	}{
		{cloud.FaultHang, "1ms", 0, "", 0},
		{cloud.FaultHangAfter, "1ms", 0, "", 1},
		{cloud.FaultReset, "", 0, "", 0},
		{cloud.FaultResetAfter, "", 0, "", 1},
		{cloud.Fault500Before, "", 500, "internal_error", 0},
		{cloud.Fault500After, "", 500, "internal_error", 1},
		{cloud.Fault503, "", 503, "maintenance", 0},
		{cloud.FaultSlowBody, "20ms", 201, "", 1},
		{cloud.FaultDuplicate, "", 201, "", 1},
		{cloud.FaultHalfJSON, "", 201, "", 1},
		{cloud.FaultHTML, "", 200, "", 1},
		{cloud.FaultWrongID, "", 201, "", 1},
		{cloud.FaultExtraFields, "", 201, "", 1},
		{cloud.FaultClockOff, "-3h", 201, "", 1},
		{cloud.FaultUnauthorized, "", 401, "unauthorized", 0},
		{cloud.FaultForbidden, "", 403, "forbidden", 0},
		{cloud.Fault429, "", 429, "rate_limited", 0},
		{cloud.Fault429RetryAfter, "7s", 429, "rate_limited", 0},
		{cloud.FaultQuota, "", 403, "quota_exceeded", 0},
		{cloud.FaultPayment, "", 402, "payment_required", 0},
		{cloud.FaultOutOfStock, "", 409, "out_of_stock", 0},
		{cloud.FaultOfferGone, "", 404, "offer_not_found", 0},
		{cloud.FaultLateListing, "1h", 201, "", 1},
		{cloud.FaultLostLabel, "", 201, "", 1},
		{cloud.FaultNeverReady, "", 201, "", 1},
	} {
		t.Run(test.kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c, _ := open(t, dir)
			c.fault(object{"match": object{"method": "POST", "path": "/v1/machines"}, "kind": test.kind, "delay": test.delay})
			status, header, answer, err := c.try("POST", "/v1/machines", order("one"))
			if status != test.status && err == nil || (test.status == 0) != (err != nil) {
				t.Fatalf("status %d, %v; want %d", status, err, test.status)
			}
			var f failure
			if test.code != "" && (json.Unmarshal(answer, &f) != nil || f.Error.Code != test.code) {
				t.Errorf("answer %s, want code %s", answer, test.code)
			}
			if n := count(t, dir, cloud.EntryOrder); n != test.sold {
				t.Errorf("%d sold, want %d", n, test.sold)
			}
			if n := count(t, dir, cloud.EntryFault); n != 1 {
				t.Errorf("the ledger has %d faults", n)
			}
			checkSpoilt(t, c, test.kind, header, answer)
		})
	}
}

// checkSpoilt looks at what is peculiar to a fault.
func checkSpoilt(t *testing.T, c *client, kind string, header http.Header, answer []byte) {
	t.Helper()
	var m cloud.Machine
	err := json.Unmarshal(answer, &m)
	switch kind {
	case cloud.FaultHalfJSON, cloud.FaultHTML:
		if err == nil {
			t.Errorf("whole JSON: %s", answer)
		}
	case cloud.FaultReset, cloud.FaultResetAfter, cloud.FaultHang, cloud.FaultHangAfter:
	case cloud.Fault429, cloud.Fault429RetryAfter:
		want := map[string]string{cloud.Fault429RetryAfter: "7"}[kind]
		if got := header.Get("Retry-After"); got != want {
			t.Errorf("Retry-After %q, want %q", got, want)
		}
	case cloud.FaultWrongID:
		c.refused(404, "not_found", "GET", "/v1/machines/"+m.ID, nil)
	case cloud.FaultExtraFields:
		if !strings.Contains(string(answer), "x_future") {
			t.Errorf("nothing extra in %s", answer)
		}
	case cloud.FaultClockOff:
		if date, err := http.ParseTime(header.Get("Date")); err != nil || time.Since(date) < 2*time.Hour {
			t.Errorf("date %v, %v", date, err)
		}
		if time.Since(m.CreatedAt) < 2*time.Hour {
			t.Errorf("created at %v", m.CreatedAt)
		}
	case cloud.FaultLateListing:
		if got := c.named("one"); len(got) != 0 {
			t.Errorf("listed at once: %v", got)
		}
		call[cloud.Machine](c, 200, "GET", "/v1/machines/"+m.ID, nil)
	case cloud.FaultLostLabel:
		if got := c.named("one"); len(got) != 1 || len(got[0].Labels) != 0 {
			t.Errorf("by name: %v", got)
		}
		if again := c.order("one"); again.ID != m.ID {
			t.Errorf("the client token bought another machine: %v", again)
		}
	}
}

func TestResetIsAReset(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.fault(object{"kind": cloud.FaultReset})
	if _, _, _, err := c.try("POST", "/v1/machines", order("one")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client saw %v", err)
	}
}

func TestDuplicateWithoutClientToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := open(t, dir)
	c.fault(object{"kind": cloud.FaultDuplicate})
	c.refused(409, "uniqueness_error", "POST", "/v1/machines", object{"offerId": "vps-small:fra1", "name": "one"})
	if n := count(t, dir, cloud.EntryOrder); n != 1 {
		t.Errorf("%d sold", n)
	}
}

func TestMachineFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, first := open(t, dir)
	c.fault(object{"match": object{"method": "POST"}, "kind": cloud.FaultNeverReady})
	stuck := c.order("stuck")

	c.fault(object{"match": object{"method": "POST"}, "kind": cloud.FaultInstallFails})
	failing := c.named("existing-vps")[0]
	if status := c.awaitInstall(failing.ID, c.install(failing.ID, installBody)); status.State != "failed" || *status.ExitCode != 1 || len(status.Log) == 0 {
		t.Errorf("install: %+v", status)
	}
	c.awaitStatus(failing.ID, cloud.StatusReady)

	c.fault(object{"match": object{"method": "POST"}, "kind": cloud.FaultInstallHangs})
	hanging := c.named("existing-metal")[0]
	c.install(hanging.ID, installBody)

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c, _ = open(t, dir)
	for id, want := range map[string]string{
		stuck.ID: cloud.StatusPending, failing.ID: cloud.StatusReady, hanging.ID: cloud.StatusInstalling,
	} {
		if got := call[cloud.Machine](c, 200, "GET", "/v1/machines/"+id, nil).Status; got != want {
			t.Errorf("after a restart %s is %s, want %s", id, got, want)
		}
	}
	c.refused(409, "locked", "POST", "/v1/machines/"+stuck.ID+"/install", installBody)
	if status := c.awaitInstall(hanging.ID, c.installAgain(hanging.ID)); status.State != "succeeded" {
		t.Errorf("the install that superseded the hanging one: %+v", status)
	}
}

func TestPageFaults(t *testing.T) {
	t.Parallel()
	c := setup(t, func(o *cloud.Options) { o.PageSize = 1 })
	c.fault(object{"kind": cloud.FaultEmptyLastPage, "count": 3})
	var sizes []int
	for next := new(1); next != nil; {
		got := call[machinePage](c, 200, "GET", "/v1/machines?page="+string(rune('0'+*next)), nil)
		sizes, next = append(sizes, len(got.Machines)), got.NextPage
	}
	if len(sizes) != 3 || sizes[2] != 0 {
		t.Errorf("page sizes %v", sizes)
	}
	c.fault(object{"kind": cloud.FaultRepeatedPage})
	if got := call[machinePage](c, 200, "GET", "/v1/machines", nil); got.NextPage == nil || *got.NextPage != 1 {
		t.Errorf("next page %v", got.NextPage)
	}
}

func TestFaultScript(t *testing.T) {
	t.Parallel()
	c := setup(t)
	c.fault(object{"match": object{"path": "/v1/machines", "nth": 2, "token": "alice"}, "kind": cloud.Fault503, "count": 2})
	bob := c.token("bob")
	for i, want := range []int{200, 503, 503, 200} {
		if status, _, _, err := c.try("GET", "/v1/machines", nil); status != want || err != nil {
			t.Errorf("call %d: %d, %v; want %d", i, status, err, want)
		}
		call[any](bob, 200, "GET", "/v1/machines", nil)
		call[any](c, 200, "GET", "/v1/offers", nil)
	}
	c.fault(object{"kind": cloud.Fault429, "count": -1})
	for range 3 {
		c.refused(429, "rate_limited", "GET", "/v1/offers", nil)
	}
	call[any](c, 204, "DELETE", "/v1/_faults", nil)
	call[any](c, 200, "GET", "/v1/offers", nil)

	for _, bad := range []any{"[null]", "{}", []object{{"kind": "unheard-of"}}, []object{{"kind": "hang", "delay": "soon"}}, `[{"x":1}]`} {
		c.refused(422, "invalid_input", "POST", "/v1/_faults", bad)
	}
	entries := call[struct{ Entries []cloud.Entry }](c, 200, "GET", "/v1/_ledger", nil).Entries
	if len(entries) != 6 || entries[1].Fault != cloud.Fault503 || entries[1].Method != "GET" || entries[1].Path != "/v1/machines" {
		t.Errorf("ledger: %+v", entries)
	}
}

func TestAdminIsForThisComputer(t *testing.T) {
	t.Parallel()
	c, opened := open(t, t.TempDir())
	request, err := http.NewRequestWithContext(t.Context(), "GET", c.url+"/v1/_ledger", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.test.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("without the header: %d", response.StatusCode)
	}
	request.Header.Set(cloud.AdminHeader, "x")
	request.RemoteAddr = "192.0.2.1:1234"
	if got := serveDirectly(opened, request); got != http.StatusForbidden {
		t.Errorf("from another computer: %d", got)
	}
}

func serveDirectly(c *cloud.Cloud, r *http.Request) int {
	recorder := httptest.NewRecorder()
	c.Handler().ServeHTTP(recorder, r)
	return recorder.Code
}
