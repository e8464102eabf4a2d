//go:build !linux

package hostile

// giveWay and goFirst: only Linux has policies of threads.
func giveWay() error { return nil }

func goFirst() error { return nil }
