//go:build planted_nocheck

package walls

const decides = false
