//go:build !planted_nocheck

package authz

// decides is false only in a build that is made to show that tenants are kept apart without decisions too.
const decides = true
