package harness

import "syscall"

// childAttributes makes the kernel kill a child when the test process exits for any reason.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
