package election

import (
	"errors"
	"fmt"
	"time"

	"binnacle/libs/api"
	"binnacle/libs/options"
)

// Defaults of Kubernetes' controllers.
const (
	defaultLease   = 15 * time.Second
	defaultRenewal = 10 * time.Second
	defaultRetry   = 2 * time.Second
	// leasesLock is the only supported kind of lock.
	leasesLock = "leases"
)

// Options holds the flags of leader election.
type Options struct {
	Enabled                         bool
	LeaseDuration                   time.Duration
	RenewDeadline                   time.Duration
	RetryPeriod                     time.Duration
	ResourceLock                    string
	ResourceName, ResourceNamespace string
}

// NewOptions returns the defaults of a controller.
func NewOptions(name string) *Options {
	return &Options{
		Enabled: true, LeaseDuration: defaultLease, RenewDeadline: defaultRenewal, RetryPeriod: defaultRetry,
		ResourceLock: leasesLock, ResourceName: name, ResourceNamespace: api.SystemNamespace,
	}
}

// AddFlags declares the flags in the section "leader election".
func (o *Options) AddFlags(s *options.Sections) {
	flags := s.Set("leader election")
	flags.BoolVar(&o.Enabled, "leader-elect", o.Enabled, "work only while holding a lease, so that several replicas can run")
	flags.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration,
		"how long other candidates wait after the last observed renewal before they take over the lease")
	flags.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline,
		"how long the leader tries to renew the lease before it stops leading; less than the lease duration")
	flags.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod,
		"time between two attempts to acquire or renew the lease")
	flags.StringVar(&o.ResourceLock, "leader-elect-resource-lock", o.ResourceLock,
		`kind of the lock object; only "leases" is supported`)
	flags.StringVar(&o.ResourceName, "leader-elect-resource-name", o.ResourceName, "name of the lease")
	flags.StringVar(&o.ResourceNamespace, "leader-elect-resource-namespace", o.ResourceNamespace, "namespace of the lease")
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	if !o.Enabled {
		return nil
	}
	var errs []error
	if o.RetryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("--leader-elect-retry-period must be positive, got %s", o.RetryPeriod))
	}
	if o.LeaseDuration < time.Second {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration must be at least 1s, got %s", o.LeaseDuration))
	}
	if o.LeaseDuration <= o.RenewDeadline {
		errs = append(errs, errors.New("--leader-elect-lease-duration must be more than --leader-elect-renew-deadline"))
	}
	if o.RenewDeadline <= time.Duration(jitterFactor*float64(o.RetryPeriod)) {
		errs = append(errs, fmt.Errorf("--leader-elect-renew-deadline must be more than %v times --leader-elect-retry-period", jitterFactor))
	}
	if o.ResourceLock != leasesLock {
		errs = append(errs, fmt.Errorf(`--leader-elect-resource-lock must be "leases", got %q`, o.ResourceLock))
	}
	if o.ResourceName == "" || o.ResourceNamespace == "" {
		errs = append(errs, errors.New("--leader-elect-resource-name and --leader-elect-resource-namespace must not be empty"))
	}
	return errs
}
