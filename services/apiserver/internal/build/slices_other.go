//go:build !linux

package build

// shortSlices asks for what other systems do not have.
func shortSlices() {}
