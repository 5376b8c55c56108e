package rest_test

import (
	"testing"

	"better/compute/rest"
)

func TestCost(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"/api/compute/providerAccounts/get": 1, "/api/compute/providerAccounts/list": 100, "/api/compute/providerAccounts/offers": 51,
		"/api/compute/providerAccounts/create": 21, "/api/compute/providerAccounts/update": 21, "/api/compute/providerAccounts/delete": 21,
		"/api/compute/providerAccounts/bootstrap": 21, "/api/compute/openapi.json": 1, "/api/compute/list": 1,
	} {
		if got, live := rest.Cost(path); got != want || live != (want == 51) {
			t.Errorf("%s costs %d, live: %t; want %d", path, got, live, want)
		}
	}
}
