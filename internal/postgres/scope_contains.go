package postgres

import "strings"

// Contains reports whether the scope has the tenant's rows.
func (s Scope) Contains(tenantID string) bool {
	if s.setting == everyTenant {
		return true
	}
	element := `"` + arrayEscaper.Replace(tenantID) + `"`
	return strings.Contains(s.setting, "{"+element) || strings.Contains(s.setting, ","+element)
}
