package servicerunner

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"binnacle/libs/idlememory"
	"binnacle/libs/kubeclient"
	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/metrics"
	"binnacle/libs/task"
	"binnacle/libs/tracing"
)

// heapGrowth is the value of GOGC if the environment does not set it. A small service holds objects
// that change little, so less memory is worth a little more processor time. There is no default
// memory limit, because the right one depends on the size of the cluster.
const heapGrowth = 50

// Options holds the flags of every small service.
type Options struct {
	Serving *serving.Options
	Client  *kubeclient.Options
	Tracing tracing.Options
}

// NewOptions returns the default options of a service.
func NewOptions(name string, port int) *Options {
	return &Options{Serving: serving.NewOptions(name, port), Client: kubeclient.NewOptions()}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Serving.AddFlags(s)
	o.Client.AddFlags(s)
	o.Tracing.AddFlags(s.Set("traces"))
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
	// APIServer tracks whether the API server is reachable. It is the check "apiserver" on /readyz.
	APIServer *kubeclient.Probe
	// Traces is nil without tracing. Requests of Client continue the trace of the request that they
	// are sent for.
	Traces *tracing.Provider
	// Follow reports whether a request continues the trace of its caller. It should be true only for
	// the suite's services, so that other clients do not decide on sampling. nil continues no trace.
	Follow func(*http.Request) bool
}

// New returns a service and binds its port. It sets the garbage collector's target of the process,
// unless the environment does. A service that is not run must be closed.
func New(name string, options *Options, log *slog.Logger) (*Service, error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	service := &Service{Log: log, Metrics: metrics.New()}
	var err error
	if service.Client, err = options.Client.Config(name); err != nil {
		return nil, err
	}
	if service.APIServer, err = kubeclient.NewProbe(service.Client, log); err != nil {
		return nil, err
	}
	service.Health = health.New(health.Config{LivezGracePeriod: options.Serving.LivezGracePeriod, Logger: log})
	service.Health.Add("apiserver", service.APIServer.Check, health.Readyz)
	if service.Engine, err = serving.NewEngine(log); err != nil {
		return nil, err
	}
	service.Health.Mount(service.Engine)
	service.Engine.GET("/metrics", gin.WrapH(metrics.Handler(service.Metrics, log)))
	service.Engine.GET("/metrics/slis", gin.WrapH(metrics.Handler(service.Health.SLIs(), log)))
	certs, err := kubeclient.Certificates("api-client", service.Client)
	if err != nil {
		return nil, err
	}
	service.Server, err = serving.NewServer(serving.Config{
		Options: options.Serving,
		Logger:  log,
		Health:  service.Health,
		Clients: certs,
		Metrics: service.Metrics,
	})
	if err != nil {
		return nil, err
	}
	if err := service.enableTracing(name, options); err != nil {
		return nil, errors.Join(err, service.Server.Close())
	}
	return service, nil
}

// enableTracing enables tracing of incoming and outgoing requests, if it is configured.
func (s *Service) enableTracing(name string, o *Options) error {
	config, err := o.Tracing.Read()
	if config == nil || err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	s.Traces, err = tracing.New(context.Background(), tracing.Config{
		Configuration: config,
		Service:       name,
		Instance:      host,
		Logger:        s.Log,
		Metrics:       s.Metrics,
	})
	if err == nil {
		s.Client.Wrap(s.Traces.Client)
	}
	return err
}

// Close closes a service that is not run.
func (s *Service) Close() error {
	s.Traces.Close()
	return s.Server.Close()
}

// Run serves and runs the tasks until ctx ends. The tasks end after the last request.
func (s *Service) Run(ctx context.Context, tasks ...task.Task) error {
	tasks = append([]task.Task{
		{Name: "probe the API server", Run: s.APIServer.Run},
		{Name: "memory release", Run: idlememory.Release},
	}, tasks...)
	defer s.Traces.Close()
	spanName := func(r *http.Request) string { return r.Method + " " + r.URL.Path }
	handler := s.Traces.Handler(tracing.Incoming{Name: spanName, Follow: s.Follow}, s.Engine)
	return task.Around(ctx, task.Task{Name: "server", Run: func(ctx context.Context) error {
		return s.Server.Run(ctx, handler, nil)
	}}, tasks...)
}
