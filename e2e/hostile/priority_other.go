//go:build !linux

package hostile

// These functions do nothing: only Linux has scheduling policies for threads.
func lowerPriority() error { return nil }

func restorePriority() error { return nil }

func raisePriority() error { return nil }
