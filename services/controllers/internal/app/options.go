package app

import (
	"fmt"
	"strings"
	"time"

	"binnacle/libs/clusterinfo/election"
	"binnacle/libs/features"
	"binnacle/libs/options"
	"binnacle/libs/servicerunner"
)

// Name is the name of the service, of its binary, its certificate and its clients.
const Name = "controllers"

// Short is a one-line description of the service.
const Short = "Run the controllers that a control plane needs without kube-controller-manager."

const defaultPort = 6449

// Defaults of kube-controller-manager.
const (
	defaultGCWorkers        = 20
	defaultNamespaceWorkers = 10
	defaultQuotaWorkers     = 5
	defaultResync           = 5 * time.Minute
)

// Options configures the service.
type Options struct {
	*servicerunner.Options
	Election *election.Options
	Features *features.Gates
	// Controllers selects controllers: "*", "name" or "-name".
	Controllers []string
	// YieldToLease is the name of the lease whose holder runs the same controllers.
	YieldToLease string
	// RootCAFile holds the published certificates; "" publishes those of the kubeconfig.
	RootCAFile       string
	GCWorkers        int
	NamespaceWorkers int
	QuotaWorkers     int
	NamespaceResync  time.Duration
	QuotaResync      time.Duration
}

// NewOptions returns the default options.
func NewOptions() *Options {
	return &Options{
		Options:          servicerunner.NewOptions(Name, defaultPort),
		Election:         election.NewOptions(Name),
		Features:         features.New(),
		Controllers:      []string{allControllers},
		YieldToLease:     managerLease,
		GCWorkers:        defaultGCWorkers,
		NamespaceWorkers: defaultNamespaceWorkers,
		QuotaWorkers:     defaultQuotaWorkers,
		NamespaceResync:  defaultResync,
		QuotaResync:      defaultResync,
	}
}

// AddFlags implements options.Options.
func (o *Options) AddFlags(s *options.Sections) {
	o.Options.AddFlags(s)
	o.Election.AddFlags(s)
	s.Set("generic").Var(o.Features, "feature-gates", features.Help())
	flags := s.Set("controllers")
	flags.StringSliceVar(&o.Controllers, "controllers", o.Controllers,
		`Controllers to run: "*" for all, "name" for one, "-name" for all but one. Controllers: `+
			strings.Join(controllerNames(), ", ")+".")
	flags.StringVar(&o.YieldToLease, "yield-to-lease", o.YieldToLease,
		"Lease in the namespace of the own lease; no controller runs while another process holds it. Empty to run regardless.")
	flags.StringVar(&o.RootCAFile, "root-ca-file", o.RootCAFile,
		"File with the CA certificates that are published in every namespace; those of the kubeconfig if empty.")
	flags.IntVar(&o.GCWorkers, "concurrent-gc-syncs", o.GCWorkers, "Number of garbage collector workers.")
	flags.IntVar(&o.NamespaceWorkers, "concurrent-namespace-syncs", o.NamespaceWorkers,
		"Number of namespaces that are deleted at the same time.")
	flags.IntVar(&o.QuotaWorkers, "concurrent-resource-quota-syncs", o.QuotaWorkers,
		"Number of resource quotas that are computed at the same time.")
	flags.DurationVar(&o.NamespaceResync, "namespace-sync-period", o.NamespaceResync,
		"Interval at which all namespaces are checked.")
	flags.DurationVar(&o.QuotaResync, "resource-quota-sync-period", o.QuotaResync,
		"Interval at which all resource quotas are computed again.")
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	errs := append(o.Options.Validate(), o.Election.Validate()...)
	errs = append(errs, o.Features.Validate()...)
	errs = append(errs, selection(o.Controllers).validate()...)
	for flag, n := range map[string]int{
		"concurrent-gc-syncs":             o.GCWorkers,
		"concurrent-namespace-syncs":      o.NamespaceWorkers,
		"concurrent-resource-quota-syncs": o.QuotaWorkers,
	} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("--%s must be at least 1, got %d", flag, n))
		}
	}
	for flag, d := range map[string]time.Duration{
		"namespace-sync-period":      o.NamespaceResync,
		"resource-quota-sync-period": o.QuotaResync,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s must be positive, got %s", flag, d))
		}
	}
	return errs
}
