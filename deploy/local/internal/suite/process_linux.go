package suite

import "syscall"

// processAttributes: no service outlives the supervisor, however that ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
