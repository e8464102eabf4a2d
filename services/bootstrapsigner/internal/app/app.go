package app

import (
	"context"
	"errors"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/clusterinfo"
	"binnacle/libs/clusterinfo/election"
	"binnacle/libs/clusterinfo/queuemetrics"
	"binnacle/libs/kubeclient"
	"binnacle/libs/options"
	"binnacle/libs/servicerunner"
	"binnacle/libs/serving/health"
	"binnacle/libs/task"
	"binnacle/services/bootstrapsigner/internal/controller"
)

// Name is the name of the service, of its binary, its certificate and its clients.
const Name = "bootstrapsigner"

// Short is a one-line description of the service.
const Short = "Sign the ConfigMap cluster-info with bootstrap tokens."

const defaultPort = 6447

// Options configures the service.
type Options struct {
	*servicerunner.Options
	Election *election.Options
}

// NewOptions returns the default options.
func NewOptions() *Options {
	return &Options{Options: servicerunner.NewOptions(Name, defaultPort), Election: election.NewOptions(Name)}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Options.AddFlags(s)
	o.Election.AddFlags(s)
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	return append(o.Options.Validate(), o.Election.Validate()...)
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
	config.Queues = queuemetrics.New(service.Metrics)
	c := controller.New(config)
	service.Health.Add("leaderElection", elected.HealthCheck, health.Healthz, health.Livez)
	service.Health.Add("lease", elected.Ready, health.Readyz)
	service.Health.Add("controller", c.Check, health.Readyz)
	return service.Run(ctx, task.Task{Name: "bootstrap signer", Run: func(ctx context.Context) error {
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
	out.ConfigMaps, err = kubeclient.NewResource[corev1.ConfigMap, corev1.ConfigMapList](client,
		corev1.SchemeGroupVersion.WithResource("configmaps"), clusterinfo.Namespace)
	return out, err
}
