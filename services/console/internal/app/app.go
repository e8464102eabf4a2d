package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
	"binnacle/libs/options"
	"binnacle/libs/servicerunner"
	"binnacle/libs/task"
	"binnacle/services/console/internal/access"
	"binnacle/services/console/internal/page"
	"binnacle/services/console/internal/scrape"
)

// Name is the name of the service, of its binary, its certificate and its clients.
const Name = "console"

// Short is a one-line description of the service.
const Short = "Serve a web page that shows the state of the suite."

const defaultPort = 6448

// Options configures the service.
type Options struct {
	*servicerunner.Options
	// Targets holds the monitored services, as SERVICE=URL.
	Targets []string
	// Interval is the interval of scrapes while the page is in use, IdleInterval otherwise.
	Interval, IdleInterval time.Duration

	targets []scrape.Target
}

// NewOptions returns the default options.
func NewOptions() *Options {
	return &Options{
		Options:      servicerunner.NewOptions(Name, defaultPort),
		Interval:     2 * time.Second,
		IdleInterval: 15 * time.Second,
	}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Options.AddFlags(s)
	f := s.Set("console")
	f.StringArrayVar(&o.Targets, "target", o.Targets,
		"Service to scrape, as SERVICE=https://HOST:PORT; each address of the host is a replica, whose certificate must have the service's name; may be repeated.")
	f.DurationVar(&o.Interval, "interval", o.Interval, "Scrape interval while clients view the page.")
	f.DurationVar(&o.IdleInterval, "idle-interval", o.IdleInterval, "Scrape interval otherwise.")
}

// Complete implements options.Options.
func (o *Options) Complete() error {
	o.targets = nil
	for _, t := range o.Targets {
		target, err := scrape.ParseTarget(t)
		if err != nil {
			return fmt.Errorf("--target: %w", err)
		}
		o.targets = append(o.targets, target)
	}
	return o.Options.Complete()
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	errs := o.Options.Validate()
	if len(o.Targets) == 0 {
		errs = append(errs, errors.New("--target is required"))
	}
	if o.Interval < 100*time.Millisecond || o.IdleInterval < o.Interval {
		errs = append(errs, fmt.Errorf("--interval must be at least 100ms and --idle-interval at least --interval, got %s and %s", o.Interval, o.IdleInterval))
	}
	return errs
}

// Run runs the service until ctx ends.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	service, view, err := o.buildService(log)
	if err != nil {
		return err
	}
	return service.Run(ctx, task.Task{Name: "scrape the suite", Run: view.Run})
}

// buildService creates the service and binds its port.
func (o *Options) buildService(log *slog.Logger) (*servicerunner.Service, *page.Page, error) {
	service, err := servicerunner.New(Name, o.Options, log)
	if err != nil {
		return nil, nil, err
	}
	view, err := o.mountPage(service)
	if err != nil {
		return nil, nil, errors.Join(err, service.Server.Close())
	}
	return service, view, nil
}

// mountPage creates the page with its authorizer and its scraper.
func (o *Options) mountPage(service *servicerunner.Service) (*page.Page, error) {
	tokens, accesses, err := newReviewClients(service.Client)
	if err != nil {
		return nil, err
	}
	authorizer, err := access.NewAuthorizer(tokens, accesses, service.Server.VerifyOptions)
	if err != nil {
		return nil, err
	}
	scraper, err := scrape.New(o.targets, service.Client)
	if err != nil {
		return nil, err
	}
	view := page.New(page.Config{
		Check:        authorizer.Check,
		Scrape:       scraper.Scrape,
		Interval:     o.Interval,
		IdleInterval: o.IdleInterval,
	})
	view.Mount(service.Engine)
	return view, nil
}

// newReviewClients returns the clients for TokenReviews and SubjectAccessReviews. Both are
// create-only, so metav1.List is a placeholder.
func newReviewClients(config *rest.Config) (access.TokenReviews, access.SubjectAccessReviews, error) {
	client, err := kubeclient.NewClient(config, authenticationv1.AddToScheme, authorizationv1.AddToScheme)
	if err != nil {
		return nil, nil, err
	}
	tokens, err := kubeclient.NewResource[authenticationv1.TokenReview, metav1.List](client,
		authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"), "")
	if err != nil {
		return nil, nil, err
	}
	accesses, err := kubeclient.NewResource[authorizationv1.SubjectAccessReview, metav1.List](client,
		authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"), "")
	return tokens, accesses, err
}
