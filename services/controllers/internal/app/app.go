package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"binnacle/libs/clusterinfo/election"
	"binnacle/libs/clusterinfo/queuemetrics"
	"binnacle/libs/servicerunner"
	"binnacle/libs/serving/health"
	"binnacle/libs/task"
)

// Run runs the service until ctx ends.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	service, err := servicerunner.New(Name, o.Options, log)
	if err != nil {
		return err
	}
	clientSet, err := newClients(service.Client)
	if err != nil {
		return errors.Join(fmt.Errorf("clients of the API server: %w", err), service.Close())
	}
	elected, err := election.New(o.Election, service.Client, log, service.Metrics)
	if err != nil {
		return errors.Join(err, service.Close())
	}
	controllerRunner := &runner{options: o, clients: clientSet, log: log, queues: queuemetrics.New(service.Metrics), config: service.Client}
	work := controllerRunner.run
	if o.YieldToLease != "" {
		y := &yieldingRunner{leases: clientSet.leases(o.Election.ResourceNamespace), name: o.YieldToLease, log: log}
		work = func(ctx context.Context) error { return y.run(ctx, controllerRunner.run) }
	}
	service.Health.Add("leaderElection", elected.HealthCheck, health.Healthz, health.Livez)
	service.Health.Add("lease", elected.Ready, health.Readyz)
	service.Health.Add("controllers", controllerRunner.check, health.Readyz)
	return service.Run(ctx, task.Task{Name: "controllers", Run: func(ctx context.Context) error {
		return elected.Run(ctx, work)
	}})
}
