//go:build !linux

package app

// shortSlices asks for what other systems do not have.
func shortSlices() {}
