package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/clusterinfo/election"
	"binnacle/libs/clusterinfo/queuemetrics"
	"binnacle/libs/kubeclient"
	"binnacle/libs/options"
	"binnacle/libs/servicerunner"
	"binnacle/libs/serving/health"
	"binnacle/libs/task"
	"binnacle/services/tokencleaner/internal/controller"
)

// Name is the name of the service, of its binary, its certificate and its clients.
const Name = "tokencleaner"

// Short is a one-line description of the service.
const Short = "Delete expired bootstrap tokens."

const defaultPort = 6446

// Options configures the service.
type Options struct {
	*servicerunner.Options
	Election *election.Options
	// ClockSkewTolerance is how long a token is kept after its expiration, because the clocks of
	// machines differ. It must not be negative.
	ClockSkewTolerance time.Duration
}

// NewOptions returns the default options.
func NewOptions() *Options {
	return &Options{Options: servicerunner.NewOptions(Name, defaultPort), Election: election.NewOptions(Name)}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Options.AddFlags(s)
	o.Election.AddFlags(s)
	s.Set("token cleaner").DurationVar(&o.ClockSkewTolerance, "clock-skew-tolerance", o.ClockSkewTolerance,
		"How long after its expiration a token's secret is left, for clocks that differ; it is never deleted earlier.")
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	errs := append(o.Options.Validate(), o.Election.Validate()...)
	if o.ClockSkewTolerance < 0 {
		errs = append(errs, fmt.Errorf("--clock-skew-tolerance must not be negative, got %s", o.ClockSkewTolerance))
	}
	return errs
}

// Run runs the service until ctx ends.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	service, err := servicerunner.New(Name, o.Options, log)
	if err != nil {
		return err
	}
	config, err := newControllerConfig(service.Client)
	if err != nil {
		return errors.Join(err, service.Close())
	}
	elected, err := election.New(o.Election, service.Client, log, service.Metrics)
	if err != nil {
		return errors.Join(err, service.Close())
	}
	config.Log = log
	config.Tolerance = o.ClockSkewTolerance
	config.Queues = queuemetrics.New(service.Metrics)
	c := controller.New(config)
	service.Health.Add("leaderElection", elected.HealthCheck, health.Healthz, health.Livez)
	service.Health.Add("lease", elected.Ready, health.Readyz)
	service.Health.Add("controller", c.Check, health.Readyz)
	return service.Run(ctx, task.Task{Name: "token cleaner", Run: func(ctx context.Context) error {
		return elected.Run(ctx, c.Run)
	}})
}

// newControllerConfig returns a configuration of the controller that has only its clients. They
// connect to the API server of config.
func newControllerConfig(config *rest.Config) (out controller.Config, err error) {
	client, err := kubeclient.NewClient(config, corev1.AddToScheme)
	if err != nil {
		return out, err
	}
	out.Secrets, err = kubeclient.NewResource[corev1.Secret, corev1.SecretList](client,
		corev1.SchemeGroupVersion.WithResource("secrets"), bootstraptoken.Namespace)
	if err != nil {
		return out, err
	}
	out.Events, err = kubeclient.NewResource[corev1.Event, corev1.EventList](client,
		corev1.SchemeGroupVersion.WithResource("events"), bootstraptoken.Namespace)
	return out, err
}
