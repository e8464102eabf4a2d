package app

import (
	"context"
	"log/slog"
	"slices"

	"binnacle/libs/abac"
	"binnacle/libs/authorizer"
	"binnacle/libs/callerauth"
	"binnacle/libs/features"
	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/libs/reviews"
	"binnacle/libs/servicerunner"
	"binnacle/libs/serving/health"
	"binnacle/libs/task"
	"binnacle/services/authz-webhook/internal/policy"
	"binnacle/services/authz-webhook/internal/review"
)

// Name is the name of the service, of its binary, its certificate and its clients.
const Name = "authz-webhook"

// Short is a one-line description of the service.
const Short = "Authorize requests for API servers by RBAC, Node and ABAC (SubjectAccessReview)."

const defaultPort = 6445

// Run runs the service until ctx ends.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	service, p, err := o.buildService(log)
	if err != nil {
		return err
	}
	return service.Run(ctx, task.Task{Name: "policy", Run: p.Run})
}

// buildService creates the service and binds its port.
func (o *Options) buildService(log *slog.Logger) (*servicerunner.Service, *policy.Policy, error) {
	service, err := servicerunner.New(Name, o.Options, log)
	if err != nil {
		return nil, nil, err
	}
	rbacPolicy, err := o.mountReviews(service)
	if err != nil {
		if closeErr := service.Close(); closeErr != nil {
			log.Warn("closing the port", "error", closeErr)
		}
		return nil, nil, err
	}
	return service, rbacPolicy, nil
}

// mountReviews creates the authorizers and serves reviews.
func (o *Options) mountReviews(service *servicerunner.Service) (*policy.Policy, error) {
	// 1. Create the policy, which holds the state of the authorizers RBAC and Node.
	roles := slices.Contains(o.Modes, modeRBAC)
	nodes := slices.Contains(o.Modes, modeNode)
	rbacPolicy, err := policy.New(policy.Config{Client: service.Client, Rules: roles, Nodes: nodes, Logger: service.Log})
	if err != nil {
		return nil, err
	}
	o.Features.Warn(service.Log)
	if err := o.Features.Register(service.Metrics); err != nil {
		return nil, err
	}
	service.Health.Add("informer-sync", rbacPolicy.Check, health.Readyz)

	// 2. Create the authorizers in the order of the modes.
	var chain authorizer.Chain
	for _, m := range o.Modes {
		switch m {
		case modeNode:
			chain = append(chain, node.NewAuthorizer(rbacPolicy.Graph, o.Features.Enabled))
		case modeRBAC:
			chain = append(chain, rbacPolicy.Engine)
		case modeABAC:
			authz, err := abac.Load(o.PolicyFile, service.Log)
			if err != nil {
				return nil, err
			}
			chain = append(chain, authz)
		}
	}

	// 3. Serve reviews to authorized callers.
	config := review.Config{
		Authorizer:  chain,
		Nodes:       nodes,
		NoSelectors: !o.Features.Enabled(features.AuthorizeWithSelectors),
		Ready:       func() error { return rbacPolicy.Check(nil) },
		Logger:      service.Log,
		Metrics:     review.NewMetrics(service.Metrics),
	}
	if roles {
		config.Position = func() rbac.Position { return rbacPolicy.Engine.Snapshot().Position() }
	}
	handler := review.New(config)
	guard, err := callerauth.NewGuard(&o.Clients, service.Server.VerifyOptions)
	if err != nil {
		return nil, err
	}
	service.Follow = guard.HasValidCertificate
	if o.Clients.AnyClient {
		service.Log.Warn("any client that reaches the port may request reviews")
	}
	reviews.Mount(service.Engine, guard, handler.Serve, review.NotAllowed, "/", "/authorize")
	return rbacPolicy, nil
}
