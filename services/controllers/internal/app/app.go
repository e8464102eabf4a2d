package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"binnacle/libs/clusterinfo/election"
	"binnacle/libs/clusterinfo/queuemetrics"
	"binnacle/libs/servicerunner"
	"binnacle/libs/serving/health"
	"binnacle/libs/task"
)

// Shares of --kube-api-qps and --kube-api-burst, as in kube-controller-manager. The deletion of an
// object takes several requests, and that of a namespace takes some for each resource.
const (
	gcRate         = 2
	namespaceRate  = 20
	namespaceBurst = 100
)

// Run runs the service until ctx ends.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	s, err := servicerunner.New(Name, o.Options, log)
	if err != nil {
		return err
	}
	c, err := newClients(s.Client)
	if err != nil {
		return errors.Join(fmt.Errorf("clients of the API server: %w", err), s.Close())
	}
	elected, err := election.New(o.Election, s.Client, log, s.Metrics)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	r := &runner{options: o, clients: c, log: log, queues: queuemetrics.New(s.Metrics), config: s.Client}
	work := r.run
	if o.YieldToLease != "" {
		y := &yieldingRunner{client: c.kube, namespace: o.Election.ResourceNamespace, name: o.YieldToLease, log: log}
		work = func(ctx context.Context) error { return y.run(ctx, r.run) }
	}
	s.Health.Add("leaderElection", elected.Alive, health.Healthz, health.Livez)
	s.Health.Add("lease", elected.Ready, health.Readyz)
	s.Health.Add("controllers", r.check, health.Readyz)
	return s.Run(ctx, task.Task{Name: "controllers", Run: func(ctx context.Context) error {
		return elected.Run(ctx, work)
	}})
}

// clients holds the clients of the controllers, each with its own rate.
type clients struct {
	kube      kubernetes.Interface
	discovery discovery.DiscoveryInterface
	// followed has no rate. It lists and watches each resource once.
	followed                 metadata.Interface
	gc                       metadata.Interface
	namespaces               kubernetes.Interface
	namespacesMetadata       metadata.Interface
	quotas, roles, provision kubernetes.Interface
}

// newClients returns the clients of all controllers.
func newClients(config *rest.Config) (*clients, error) {
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1
	// All resources are followed and deleted, also deprecated ones.
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	unlimited.WarningHandler = rest.NoWarnings{}
	scaled := func(rate float32, burst int) *rest.Config {
		c := rest.CopyConfig(config)
		c.QPS = c.QPS * rate
		c.Burst = c.Burst * burst
		return c
	}
	var errs []error
	typed := func(c *rest.Config) kubernetes.Interface {
		client, err := kubernetes.NewForConfig(c)
		errs = append(errs, err)
		return client
	}
	partial := func(c *rest.Config) metadata.Interface {
		client, err := metadata.NewForConfig(c)
		errs = append(errs, err)
		return client
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	errs = append(errs, err)
	out := &clients{
		kube:               typed(config),
		discovery:          discoveryClient,
		followed:           partial(unlimited),
		gc:                 partial(scaled(gcRate, gcRate)),
		namespaces:         typed(scaled(namespaceRate, namespaceBurst)),
		namespacesMetadata: partial(scaled(namespaceRate, namespaceBurst)),
		quotas:             typed(config),
		roles:              typed(config),
		provision:          typed(config),
	}
	return out, errors.Join(errs...)
}
