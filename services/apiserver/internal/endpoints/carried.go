package endpoints

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/callout"
	"binnacle/services/apiserver/internal/request"
)

// keptForMasters of the places, one in so many, is for system:masters alone, who find out
// with logs and commands what takes the others.
const keptForMasters = 10

// Carried bounds the requests that are carried on to kubelets, pods, services and nodes, or
// whose connections extension servers upgrade, at a time, until they end: each has two
// connections, and who is asked may be silent for as long as he likes. They share the places
// as callout.Share says. More are refused, as waiting would cost as much. A nil one bounds
// nothing.
type Carried struct {
	all, masters *callout.Share
	now          prometheus.Gauge
	refused      prometheus.Counter
}

// NewCarried makes so many places and registers their metrics.
func NewCarried(most int, r prometheus.Registerer) *Carried {
	kept := min(max(most/keptForMasters, 1), most/2) // the only one is everybody's
	c := &Carried{
		all: callout.NewShare(most - kept), masters: callout.NewShare(kept),
		now: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "binnacle_carried_requests", Help: "Requests for logs, commands, forwarded ports and proxies that are carried on to kubelets, pods, services and nodes, or upgraded by extension servers.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "binnacle_carried_requests_refused_total", Help: "Requests that were not carried on, as too many are already.",
		}),
	}
	r.MustRegister(c.now, c.refused)
	return c
}

// Enter takes a place until leave is called.
func (c *Carried) Enter(r *http.Request) (leave func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	u := request.UserFrom(r.Context())
	asker := request.Principal(r.Context())
	back, ok := c.all.EnterNow(asker)
	if !ok && u.InGroup(api.GroupMasters) {
		back, ok = c.masters.EnterNow(asker)
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
