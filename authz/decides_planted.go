//go:build planted_nocheck

package authz

const decides = false
