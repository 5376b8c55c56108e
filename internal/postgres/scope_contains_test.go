package postgres

import "testing"

func TestScopeContains(t *testing.T) {
	t.Parallel()
	some := Tenants("a", "b:1", `q"u`, "tenant-12")
	for tenant, want := range map[string]bool{
		"a": true, "b:1": true, `q"u`: true, "tenant-12": true,
		"": false, "b": false, "1": false, "tenant-1": false, "A": false, `"`: false, "u": false, ",": false, `","`: false, "*": false, "{": false,
	} {
		if got := some.Contains(tenant); got != want {
			t.Errorf("%s has %q: %v", some, tenant, got)
		}
		if !AllTenants().Contains(tenant) {
			t.Errorf("all tenants do not have %q", tenant)
		}
		if Tenants().Contains(tenant) || (Scope{}).Contains(tenant) {
			t.Errorf("no tenant has %q", tenant)
		}
	}
}
