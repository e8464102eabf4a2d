package build

import (
	"cmp"
	"syscall"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/rest/handlers"
)

// kubelets makes the connections to what runs on nodes.
func (p *parts) kubelets() (*kubeletproxy.Upstream, error) {
	if p.options.Upstream.CAFile == "" {
		p.log.Warn("kubelets are not verified: --kubelet-certificate-authority is not given")
	}
	up, err := kubeletproxy.New(p.options.Upstream, p.metrics, p.egress.To(egress.Cluster))
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, up.Close)
	return up.Traced(p.traces), nil
}

// carried bounds what is carried on, as Upstream.MaxCarried says: half of the files that the process
// may have open, as each has two connections, and no more than there is memory for.
func (p *parts) carried() *handlers.Carried {
	var files syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) // of none, the least
	return handlers.NewCarried(cmp.Or(p.options.Upstream.MaxCarried, int(min(max(files.Cur/4, leastCarried), mostCarried))), p.metrics)
}

// Requests that are carried on at a time, whatever number of files there may be.
const leastCarried, mostCarried = 100, 2000
