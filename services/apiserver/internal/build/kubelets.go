package build

import (
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
)

// newKubelets creates the client of kubelets and pods.
func newKubelets(b *base, o kubeletproxy.Options) (*kubeletproxy.Upstream, error) {
	if o.CAFile == "" {
		b.log.Warn("kubelets are not verified: --kubelet-certificate-authority is not given")
	}
	up, err := kubeletproxy.New(o, b.metrics, b.egress.To(egress.Cluster))
	if err != nil {
		return nil, err
	}
	b.life.onClose(up.Close)
	return up.Traced(b.traces), nil
}
