package app

import (
	"binnacle/services/apiserver/internal/egress"
	"binnacle/services/apiserver/internal/upstream"
)

// kubelets makes the connections to what runs on nodes.
func (p *parts) kubelets() (*upstream.Upstream, error) {
	if p.options.Upstream.CAFile == "" {
		p.log.Warn("kubelets are not verified: --kubelet-certificate-authority is not given")
	}
	up, err := upstream.New(p.options.Upstream, p.metrics, p.egress.To(egress.Cluster))
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, up.Close)
	return up.Traced(p.traces), nil
}
