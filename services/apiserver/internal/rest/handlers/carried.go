package handlers

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
)

// keptForMasters is the divisor of the share of the limit that is reserved for system:masters, so
// that administrators can inspect an overload with logs and exec.
const keptForMasters = 10

// Carried limits the number of concurrent requests that are proxied to kubelets, pods, services and
// nodes, or whose connections extension servers upgrade. Each holds two connections until it ends,
// and the upstream may be silent for any time. Clients share the limit as webhookclient.Share describes.
// Requests beyond it are rejected, because waiting would cost as much. A nil Carried has no limit.
type Carried struct {
	all, masters *webhookclient.FairLimiter
	now          prometheus.Gauge
	refused      prometheus.Counter
}

// NewCarried returns a Carried for most requests and registers its metrics.
func NewCarried(most int, r prometheus.Registerer) *Carried {
	kept := min(max(most/keptForMasters, 1), most/2) // a limit of 1 is shared by all clients
	c := &Carried{
		all: webhookclient.NewFairLimiter(most - kept), masters: webhookclient.NewFairLimiter(kept),
		now: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "binnacle_carried_requests", Help: "Requests proxied to kubelets, pods, services and nodes, such as logs, exec and port forwarding, and connections upgraded by extension servers.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "binnacle_carried_requests_refused_total", Help: "Proxied requests rejected because of too many in progress.",
		}),
	}
	r.MustRegister(c.now, c.refused)
	return c
}

// Enter acquires the limit until leave is called, or returns a 429 error.
func (c *Carried) Enter(r *http.Request) (leave func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	u := request.UserFrom(r.Context())
	asker := request.Principal(r.Context())
	back, ok := c.all.TryAcquire(asker)
	if !ok && u.InGroup(api.GroupMasters) {
		back, ok = c.masters.TryAcquire(asker)
	}
	if !ok {
		c.refused.Inc()
		return nil, apierrors.NewTooManyRequests("Too many requests are carried on to kubelets, pods, services and nodes already, please try again later", 1)
	}
	c.now.Inc()
	return func() {
		c.now.Dec()
		back()
	}, nil
}
