package app

import (
	"context"
	"log/slog"

	"binnacle/libs/authenticator"
	"binnacle/libs/callerauth"
	"binnacle/libs/reviews"
	"binnacle/libs/servicerunner"
	"binnacle/services/authn-webhook/internal/review"
)

// Name is the name of the service, of its binary, its certificate and its clients.
const Name = "authn-webhook"

// Short is a one-line description of the service.
const Short = "Review bearer tokens for API servers (TokenReview)."

const defaultPort = 6444

// Run runs the service until ctx ends.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	service, err := o.buildService(log)
	if err != nil {
		return err
	}
	return service.run(ctx)
}

// service holds the runner and the authenticators that buildService creates.
type service struct {
	*servicerunner.Service
	tokens *tokenAuthenticators
}

// buildService creates the service and binds its port.
func (o *Options) buildService(log *slog.Logger) (*service, error) {
	runner, err := servicerunner.New(Name, o.Options, log)
	if err != nil {
		return nil, err
	}
	svc := &service{Service: runner}
	if err := o.configure(svc); err != nil {
		if closeErr := runner.Close(); closeErr != nil {
			log.Warn("closing the port", "error", closeErr)
		}
		return nil, err
	}
	return svc, nil
}

// configure registers the metrics, creates the authenticators and serves reviews to authorized callers.
func (o *Options) configure(svc *service) (err error) {
	o.Features.Warn(svc.Log)
	if err := o.Features.Register(svc.Metrics); err != nil {
		return err
	}
	if svc.tokens, err = o.Tokens.buildAuthenticators(svc.Service, o.Features); err != nil {
		return err
	}
	guard, err := callerauth.NewGuard(&o.Clients, svc.Server.VerifyOptions)
	if err != nil {
		return err
	}
	// Continue the trace of a caller only if its certificate is valid.
	svc.Follow = guard.HasValidCertificate
	if o.Clients.AnyClient {
		svc.Log.Warn("any client that reaches the port may request reviews")
	}
	handler := review.New(review.Config{
		Token:   authenticator.Unreserved(svc.tokens.union),
		Logger:  svc.Log,
		Metrics: review.NewMetrics(svc.Metrics),
	})
	reviews.Mount(svc.Engine, guard, handler.Serve, review.NotAllowed, "/", "/authenticate")
	return nil
}

// run runs the service with the tasks of its authenticators.
func (s *service) run(ctx context.Context) error { return s.Service.Run(ctx, s.tokens.tasks...) }
