package app

import (
	"context"
	"log/slog"

	"github.com/gin-gonic/gin"

	"binnacle/libs/chassis"
	"binnacle/services/authn-webhook/internal/review"
)

// Name is the service's name: of its binary, its certificate and its clients.
const Name = "authn-webhook"

// Short says what the service is, in one line.
const Short = "The authn-webhook service of binnacle, for bearer tokens."

const defaultPort = 6444

// Run runs the service until ctx ends.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	s, err := o.build(log)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// service is a service before it runs.
type service struct {
	*chassis.Service
	tokens *tokens
}

// build makes the service and binds its port.
func (o *Options) build(log *slog.Logger) (*service, error) {
	c, err := chassis.New(Name, o.Options, log)
	if err != nil {
		return nil, err
	}
	s := &service{Service: c}
	if s.tokens, err = o.Tokens.build(c); err != nil {
		if closeErr := c.Server.Close(); closeErr != nil {
			log.Warn("closing the port", "error", closeErr)
		}
		return nil, err
	}
	h := review.New(review.Config{Token: s.tokens.union, Logger: log, Metrics: review.NewMetrics(c.Metrics)})
	guard := o.Clients.guard(c.Server.VerifyOptions)
	for _, path := range []string{"/", "/authenticate"} {
		c.Engine.POST(path, guard, h.Serve)
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE"} {
			c.Engine.Handle(method, path, guard, review.NotAllowed)
		}
	}
	return s, nil
}

func (s *service) run(ctx context.Context) error { return s.Service.Run(ctx, s.tokens.tasks...) }

// pass lets a request on.
func pass(*gin.Context) {}
