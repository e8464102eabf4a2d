//go:build unix && !linux

package harness

import "syscall"

// childAttributes puts a child into its own process group, so that it does not receive signals for
// the test's group.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
