package apitest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
	"better/compute/provider/sim/cloud"
)

// TestProviderErrors has the cloud fail in each way and wants PROVIDER_ERROR with its reason, the same over both transports.
func TestProviderErrors(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	token := d.caller("user:a", "tenant-admin compute-tenant/failing")
	s := d.serve(t)
	if out := s.graphql(t, "putSecret", token, map[string]any{"tenantId": "failing", "name": "sim", "value": newSecret()}); out.Code != "" {
		t.Fatalf("putSecret: %+v", out)
	}
	for _, c := range []struct {
		fault     string
		reason    string
		retryable bool
		more      map[string]any
	}{
		{cloud.Fault500Before, "unavailable", true, nil},
		{cloud.Fault503, "unavailable", true, nil},
		{cloud.FaultReset, "unavailable", true, nil},
		{cloud.FaultHalfJSON, "invalid_response", true, nil},
		{cloud.FaultHTML, "invalid_response", true, nil},
		{cloud.Fault429, "rate_limited", true, nil},
		{cloud.Fault429RetryAfter, "rate_limited", true, map[string]any{"retryAfterSeconds": json.Number("7")}},
		{cloud.FaultUnauthorized, "credentials", false, nil},
		{cloud.FaultForbidden, "credentials", false, nil},
	} {
		t.Run(c.fault, func(t *testing.T) { // one after the other: a fault is for all calls
			input := map[string]any{"tenantId": "failing", "provider": "sim", "name": c.fault, "config": map[string]any{"apiToken": "secret://sim"}}
			created := s.graphql(t, "create", token, input)
			d.setFaults(t, []cloud.Fault{{Match: cloud.Match{Path: "/v1/offers"}, Kind: c.fault, Count: -1, Delay: "7s"}})
			defer d.setFaults(t, nil)
			at := map[string]any{"tenantId": "failing", "accountId": member(created.Data, "id")}
			body, err := json.Marshal(at)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"provider": "sim", "reason": c.reason, "retryable": c.retryable}
			maps.Copy(want, c.more)
			for transport, out := range map[string]outcome{"REST": s.rest(t, "offers", token, body), "GraphQL": s.graphql(t, "offers", token, at)} {
				for _, own := range []string{"requestId", "providerCode"} { // the provider's, where it gave one
					delete(out.Details, own)
				}
				if out.Code != problem.ProviderError {
					t.Errorf("%s: %+v", transport, out)
				}
				if diff := cmp.Diff(want, out.Details); diff != "" {
					t.Errorf("%s: details (-want +got):\n%s", transport, diff)
				}
			}
		})
	}
}

// setFaults replaces the cloud's fault script.
func (d *deployment) setFaults(t *testing.T, faults []cloud.Fault) {
	t.Helper()
	body, err := json.Marshal(faults)
	if err != nil {
		t.Fatal(err)
	}
	method, status := http.MethodPost, http.StatusNoContent
	if faults == nil {
		method = http.MethodDelete
	}
	req, err := http.NewRequestWithContext(t.Context(), method, d.cloudURL+"/v1/_faults", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Cloud-Admin", "test")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != status {
		t.Fatalf("setting faults: %s", resp.Status)
	}
}
