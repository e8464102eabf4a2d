package chassis

import (
	"context"
	"log/slog"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/task"
)

// Options are the flags that every small service has.
type Options struct {
	Serving *serving.Options
	Client  *kubeclient.Options
}

// NewOptions returns the defaults of a service.
func NewOptions(name string, port int) *Options {
	return &Options{Serving: serving.NewOptions(name, port), Client: kubeclient.NewOptions()}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Serving.AddFlags(s)
	o.Client.AddFlags(s)
}

// Complete implements options.Options.
func (o *Options) Complete() error { return o.Serving.Complete() }

// Validate implements options.Options.
func (o *Options) Validate() []error {
	return append(o.Serving.Validate(), o.Client.Validate()...)
}

// Service is a service between its construction and its end.
type Service struct {
	Log     *slog.Logger
	Engine  *gin.Engine
	Health  *health.Registry
	Metrics *prometheus.Registry
	Server  *serving.Server
	// Client is the configuration of clients of the API server.
	Client *rest.Config
	// APIServer tells whether the API server is reached; it is the check
	// "apiserver" on /readyz.
	APIServer *kubeclient.Probe
}

// New makes a service and binds its port. One that is not run must be closed
// through its Server.
func New(name string, o *Options, log *slog.Logger) (*Service, error) {
	s := &Service{Log: log, Metrics: metrics.New()}
	var err error
	if s.Client, err = o.Client.Config(name); err != nil {
		return nil, err
	}
	if s.APIServer, err = kubeclient.NewProbe(s.Client, log); err != nil {
		return nil, err
	}
	s.Health = health.New(health.Config{LivezGracePeriod: o.Serving.LivezGracePeriod, Logger: log})
	s.Health.Add("apiserver", s.APIServer.Check, health.Readyz)
	if s.Engine, err = serving.NewEngine(log); err != nil {
		return nil, err
	}
	s.Health.Mount(s.Engine)
	s.Engine.GET("/metrics", gin.WrapH(metrics.Handler(s.Metrics, log)))
	certs, err := kubeclient.Certificates("api-client", s.Client)
	if err != nil {
		return nil, err
	}
	s.Server, err = serving.NewServer(serving.Config{Options: o.Serving, Logger: log, Health: s.Health, Clients: certs, Metrics: s.Metrics})
	return s, err
}

// Run serves, with the tasks beside, until ctx ends. The tasks end after the
// last request.
func (s *Service) Run(ctx context.Context, tasks ...task.Task) error {
	tasks = append([]task.Task{{Name: "probe the API server", Run: s.APIServer.Run}}, tasks...)
	return task.Around(ctx, task.Task{Name: "server", Run: func(ctx context.Context) error {
		return s.Server.Run(ctx, s.Engine)
	}}, tasks...)
}
