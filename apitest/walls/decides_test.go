//go:build !planted_nocheck

package walls

// decides is whether this build decides who may do what.
const decides = true
