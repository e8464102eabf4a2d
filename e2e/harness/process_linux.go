package harness

import "syscall"

// childAttributes makes a child end when the test process ends for any reason.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
