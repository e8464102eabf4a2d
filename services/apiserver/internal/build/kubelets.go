package build

import (
	"cmp"
	"syscall"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/rest/handlers"
)

// kubelets creates the client of kubelets and pods.
func (p *parts) kubelets() (*kubeletproxy.Upstream, error) {
	if p.options.Upstream.CAFile == "" {
		p.log.Warn("kubelets are not verified: --kubelet-certificate-authority is not given")
	}
	up, err := kubeletproxy.New(p.options.Upstream, p.metrics, p.egress.To(egress.Cluster))
	if err != nil {
		return nil, err
	}
	p.life.onClose(up.Close)
	return up.Traced(p.traces), nil
}

// proxyLimit returns the limit of concurrent proxied requests (Options.MaxProxied or its default).
// Each request has two connections, so the default is a quarter of the file limit of the process, within
// bounds.
func (p *parts) proxyLimit() *handlers.Carried {
	var files syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) // without a limit, the minimum
	return handlers.NewCarried(cmp.Or(p.options.Upstream.MaxProxied, int(min(max(files.Cur/4, minProxied), maxProxied))), p.metrics)
}

// Bounds of the default limit of concurrent proxied requests.
const minProxied, maxProxied = 100, 2000
