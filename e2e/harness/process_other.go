//go:build unix && !linux

package harness

import "syscall"

// childAttributes keep a signal for the test's group from its children.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
