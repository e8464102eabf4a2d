package autoregister

import (
	"context"
	"iter"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/task"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

const (
	// ManagedLabel marks the APIServices that the server creates for its own group versions.
	ManagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// ManagedOnStart is its value for built-in group versions. The server creates these at the
	// start and does not correct them.
	ManagedOnStart = "onstart"
	// ManagedAlways is its value for group versions of custom resources, which the server corrects
	// and deletes.
	ManagedAlways = "true"
)

// RetryInterval is the delay after a failed write.
const RetryInterval = time.Second

// Registrations maintains an APIService for each group version of custom resources. It does not
// change an APIService of the same name without the label ManagedLabel.
type Registrations struct {
	API *internalclient.Client
	// Live returns the APIServices in the watch cache, which must not be changed. Reading them from
	// the store would be too expensive, because there may be thousands of changes.
	Live func() (iter.Seq[*apiregistrationv1.APIService], error)
	// Desired is CustomVersions.Desired.
	Desired func() (desired []APIService, ok bool)
	// Gone reports whether no definition serves a group version any longer. It may use newer data
	// than Desired. It returns false while a definition cannot be read, because that definition may
	// serve the group version.
	Gone func(ctx context.Context, group, version string) bool
	// Changed receives a value after changes of the served group versions and of APIServices.
	Changed <-chan struct{}
	Logger  *slog.Logger
}

// Run maintains the APIServices until ctx is canceled.
func (r *Registrations) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.Changed:
		case <-retry.C:
		}
		start := time.Now()
		if err := r.reconcileAll(ctx); err != nil && ctx.Err() == nil {
			level := slog.LevelError
			if apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) { // the watch cache is behind or still loading
				level = slog.LevelDebug
			}
			r.Logger.Log(ctx, level, "failed to write the APIServices of custom resources; retrying", "error", err)
			retry.Reset(RetryInterval)
		}
		task.Throttle(ctx, start)
	}
}

// reconcileAll creates missing APIServices, corrects changed ones, and deletes those whose group
// version is no longer served.
func (r *Registrations) reconcileAll(ctx context.Context) error {
	desired, ok := r.Desired()
	if !ok {
		return nil
	}
	live, err := r.Live()
	if err != nil {
		return err
	}
	byName := map[string]*apiregistrationv1.APIService{}
	for s := range live {
		byName[s.Name] = s
	}
	for _, service := range desired {
		existing := byName[service.Name()]
		delete(byName, service.Name())
		if err := r.createOrCorrect(ctx, service, existing); err != nil {
			return err
		}
	}
	for _, s := range byName {
		if err := r.deleteIfGone(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// createOrCorrect creates an APIService, or corrects its spec if it differs from desired. live is
// the cached object, or nil.
func (r *Registrations) createOrCorrect(ctx context.Context, desired APIService, live *apiregistrationv1.APIService) error {
	switch {
	case live == nil:
		if r.Gone(ctx, desired.Group, desired.Version) { // another replica has already removed it
			return nil
		}
		if err := r.API.Create(ctx, APIServicesPath, desired.Object(ManagedAlways)); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	case live.Labels[ManagedLabel] != ManagedAlways || desired.matches(&live.Spec):
		return nil
	}
	next := live.DeepCopy()
	next.Spec = desired.Spec()
	err := r.API.Update(ctx, APIServicesPath.Named(next.Name), next, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// deleteIfGone deletes a managed APIService whose group version is no longer served, unless it has
// changed concurrently.
func (r *Registrations) deleteIfGone(ctx context.Context, apiService *apiregistrationv1.APIService) error {
	if apiService.Labels[ManagedLabel] != ManagedAlways || !r.Gone(ctx, apiService.Spec.Group, apiService.Spec.Version) {
		return nil
	}
	err := r.API.Delete(ctx, APIServicesPath.Named(apiService.Name), &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &apiService.UID, ResourceVersion: &apiService.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// APIServicesPath refers to the collection of all APIServices.
var APIServicesPath = internalclient.Collection(apiregistrationv1.GroupName, "v1", "apiservices", "")

// APIService describes the APIService object of a group version that this server serves.
type APIService struct {
	Group, Version                 string
	GroupPriority, VersionPriority int
}

// Name returns the name of the object: "<version>.<group>".
func (s APIService) Name() string { return s.Version + "." + s.Group }

// Spec returns the spec of the object. It names no service, so this server itself serves the group
// version.
func (s APIService) Spec() apiregistrationv1.APIServiceSpec {
	return apiregistrationv1.APIServiceSpec{
		Group:                s.Group,
		Version:              s.Version,
		GroupPriorityMinimum: int32(s.GroupPriority),
		VersionPriority:      int32(s.VersionPriority),
	}
}

// matches reports whether a stored spec equals s.Spec().
func (s APIService) matches(spec *apiregistrationv1.APIServiceSpec) bool {
	desired := s.Spec()
	namesServer := spec.Service != nil || spec.InsecureSkipTLSVerify || len(spec.CABundle) > 0
	return !namesServer && spec.Group == desired.Group && spec.Version == desired.Version &&
		spec.GroupPriorityMinimum == desired.GroupPriorityMinimum && spec.VersionPriority == desired.VersionPriority
}

// Object returns the object to create. managed is the value of the label ManagedLabel.
func (s APIService) Object(managed string) map[string]any {
	return map[string]any{
		"apiVersion": apiregistrationv1.GroupName + "/v1", "kind": "APIService",
		"metadata": map[string]any{"name": s.Name(), "labels": map[string]string{ManagedLabel: managed}},
		"spec": map[string]any{
			"group":                s.Group,
			"version":              s.Version,
			"groupPriorityMinimum": s.GroupPriority,
			"versionPriority":      s.VersionPriority,
		},
	}
}
