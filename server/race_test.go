//go:build race

package server

// slowdown is what the race detector may make of a CPU bound.
const slowdown = 10
