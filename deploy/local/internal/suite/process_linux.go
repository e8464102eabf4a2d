package suite

import "syscall"

// processAttributes ensures that no service outlives the supervisor, however that ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
