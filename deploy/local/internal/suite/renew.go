package suite

import (
	"syscall"

	"binnacle/deploy/certs"
)

// renew replaces the certificates that expire soon. Services and etcd read new files themselves.
// NATS reads them when it reloads its configuration.
func (r *run) renew() {
	renewed, err := certs.Ensure(certs.Options{Dir: r.paths.certs().Dir})
	if err != nil {
		r.out.printf("certificates cannot be renewed: %v", err)
	}
	if len(renewed) == 0 {
		return
	}
	r.out.printf("renewed %d certificates and keys", len(renewed))
	if err := r.prober.reload(); err != nil {
		r.out.printf("the renewed certificates cannot be read: %v", err)
	}
	for _, g := range r.groups {
		for _, p := range g {
			if p.program == natsProgram {
				// This fails only if the process has ended.
				_ = p.cmd.Process.Signal(syscall.SIGHUP)
			}
		}
	}
}
