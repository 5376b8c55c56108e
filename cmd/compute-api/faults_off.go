//go:build !faults

package main

import "better/compute/bootstrap"

// rig does something in builds with the tag faults alone.
func rig(*bootstrap.Deps) {}

func faultPoint() func(point string) { return nil }
