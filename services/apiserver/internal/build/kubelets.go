package build

import (
	"cmp"
	"syscall"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/rest/handlers"
)

// newKubelets creates the client of kubelets and pods.
func newKubelets(b *base, o kubeletproxy.Options) (*kubeletproxy.Upstream, error) {
	if o.CAFile == "" {
		b.log.Warn("kubelets are not verified: --kubelet-certificate-authority is not given")
	}
	o.MaxPages = b.bounds.Pages
	up, err := kubeletproxy.New(o, b.metrics, b.egress.To(egress.Cluster))
	if err != nil {
		return nil, err
	}
	b.life.onClose(up.Close)
	return up.Traced(b.traces), nil
}

// newProxyLimit returns the limit of concurrent proxied requests: most or, if that is 0, a default.
// Each request has two connections, so the default is a quarter of the file limit of the process, within
// bounds.
func newProxyLimit(b *base, most int) *handlers.ProxyLimit {
	var files syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) // without a limit, the minimum
	return handlers.NewProxyLimit(cmp.Or(most, min(max(int(files.Cur/4), b.bounds.MinProxied), b.bounds.MaxProxied)), b.metrics)
}
