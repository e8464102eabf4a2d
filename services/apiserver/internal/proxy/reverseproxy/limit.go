package reverseproxy

import (
	"net/http"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
)

// mastersDivisor divides the limit: the quotient is reserved for system:masters, so that
// administrators can inspect an overload with logs and exec.
const mastersDivisor = 10

// Limit limits the number of concurrent requests that are proxied to kubelets, pods, services and
// nodes, or whose connections extension servers upgrade. Each holds two connections until it ends,
// and the upstream may be silent for any time. Principals share the limit. Requests beyond it are
// rejected, because waiting would cost as much. A nil Limit has no limit.
type Limit struct {
	requests *limit.Queue[string]
	reserved int // for system:masters
	current  prometheus.Gauge
	rejected prometheus.Counter
}

// NewLimit returns a Limit of maximum requests and registers its metrics. If maximum is 0, the
// limit is a quarter of the file limit of the process, because each request has two connections,
// but at least lower and at most upper.
func NewLimit(maximum, lower, upper int, registerer prometheus.Registerer) *Limit {
	if maximum == 0 {
		var files syscall.Rlimit
		_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) // on failure, the limit is lower
		maximum = min(max(int(files.Cur/4), lower), upper)
	}
	reserved := min(max(maximum/mastersDivisor, 1), maximum/2) // a limit of 1 is shared by all clients
	created := &Limit{
		requests: limit.New[string](limit.Options{Size: maximum, FairShare: true}),
		reserved: reserved,
		current: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "binnacle_carried_requests",
			Help: "Requests proxied to kubelets, pods, services and nodes, such as logs, exec and port forwarding, and connections upgraded by extension servers.",
		}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "binnacle_carried_requests_refused_total",
			Help: "Number of proxied requests rejected by the limit of requests in progress.",
		}),
	}
	registerer.MustRegister(created.current, created.rejected)
	return created
}

// Acquire acquires the limit until release is called, or returns a 429 error.
func (c *Limit) Acquire(r *http.Request) (release func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	slot := limit.Claim[string]{Key: request.Principal(r.Context()), MinFree: c.reserved}
	if request.UserFrom(r.Context()).InGroup(api.GroupMasters) {
		slot.MinFree = 0
		slot.NoFairShare = true
	}
	if !c.requests.TryAcquire(slot) {
		c.rejected.Inc()
		return nil, apierrors.NewTooManyRequests("Too many requests to kubelets, pods, services and nodes are in progress, please try again later",
			1)
	}
	c.current.Inc()
	return func() {
		c.current.Dec()
		c.requests.Release(slot)
	}, nil
}
