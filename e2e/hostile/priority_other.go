//go:build !linux

package hostile

// lowerPriority and raisePriority do nothing: only Linux has scheduling policies for threads.
func lowerPriority() error { return nil }

func raisePriority() error { return nil }
