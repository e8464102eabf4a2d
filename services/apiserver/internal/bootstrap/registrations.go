package bootstrap

import (
	"context"
	"iter"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/task"
	apiregistrationv1 "binnacle/services/apiserver/internal/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/loopback"
)

// managed labels the API services that the server registers for what it serves itself:
// onStart those of built-in group versions, which are made once, always those of custom
// resources, which are kept as they have to be.
const (
	managed = "kube-aggregator.kubernetes.io/automanaged"
	onStart = "onstart"
	always  = "true"
)

// registrationRetry is the pause after a write that failed.
const registrationRetry = time.Second

// Registrations keep an API service for each group version of custom resources. One
// that somebody else made under the name is left alone.
type Registrations struct {
	API *loopback.Client
	// Live are those that are stored, as far as it is known here. They are not changed: who looks at them
	// with each change of thousands cannot read them anew.
	Live func() (iter.Seq[*apiregistrationv1.APIService], error)
	// Wanted are the group versions that are served; ok is false while that is not known.
	Wanted func() (wanted []APIService, ok bool)
	// Gone reports whether a group version is served no more by what the whole suite
	// knows, which may be more than Wanted. It is false while a definition cannot be
	// read, because that one may serve the group version.
	Gone func(ctx context.Context, group, version string) bool
	// Changed receives after changes of what is served, and of API services.
	Changed <-chan struct{}
	Logger  *slog.Logger
}

// Run keeps them until ctx ends.
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
		begun := time.Now()
		if err := r.keep(ctx); err != nil && ctx.Err() == nil {
			level := slog.LevelError
			if apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) { // a change is on its way to us
				level = slog.LevelDebug
			}
			r.Logger.Log(ctx, level, "the API services of custom resources could not be written; trying again", "error", err)
			retry.Reset(registrationRetry)
		}
		task.Rest(ctx, begun)
	}
}

func (r *Registrations) keep(ctx context.Context) error {
	wanted, ok := r.Wanted()
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
	for _, w := range wanted {
		has := byName[w.name()]
		delete(byName, w.name())
		if err := r.register(ctx, w, has); err != nil {
			return err
		}
	}
	for _, s := range byName {
		if err := r.remove(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// register makes an API service, or what became of it what it has to be.
func (r *Registrations) register(ctx context.Context, w APIService, live *apiregistrationv1.APIService) error {
	switch {
	case live == nil:
		if r.Gone(ctx, w.Group, w.Version) { // somebody knew before us, and removed it
			return nil
		}
		if err := r.API.Create(ctx, apiServicesPath, w.object(always)); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	case live.Labels[managed] != always || w.is(&live.Spec):
		return nil
	}
	next := live.DeepCopy()
	next.Spec = w.spec()
	err := r.API.Update(ctx, apiServicesPath.Named(next.Name), next, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// remove deletes an API service of ours whose group version is gone, unless it became
// another one meanwhile.
func (r *Registrations) remove(ctx context.Context, s *apiregistrationv1.APIService) error {
	if s.Labels[managed] != always || !r.Gone(ctx, s.Spec.Group, s.Spec.Version) {
		return nil
	}
	err := r.API.Delete(ctx, apiServicesPath.Named(s.Name), &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

var apiServicesPath = loopback.Of(apiregistrationv1.GroupName, "v1", "apiservices", "")

func (s APIService) name() string { return s.Version + "." + s.Group }

func (s APIService) spec() apiregistrationv1.APIServiceSpec {
	return apiregistrationv1.APIServiceSpec{
		Group: s.Group, Version: s.Version, GroupPriorityMinimum: int32(s.GroupPriority), VersionPriority: int32(s.VersionPriority),
	}
}

// is tells whether a stored one says this and nothing else.
func (s APIService) is(spec *apiregistrationv1.APIServiceSpec) bool {
	w := s.spec()
	return spec.Service == nil && !spec.InsecureSkipTLSVerify && len(spec.CABundle) == 0 && spec.Group == w.Group && spec.Version == w.Version &&
		spec.GroupPriorityMinimum == w.GroupPriorityMinimum && spec.VersionPriority == w.VersionPriority
}

// object is the API service that is made of it.
func (s APIService) object(how string) map[string]any {
	return map[string]any{
		"apiVersion": apiregistrationv1.GroupName + "/v1", "kind": "APIService",
		"metadata": map[string]any{"name": s.name(), "labels": map[string]string{managed: how}},
		"spec":     map[string]any{"group": s.Group, "version": s.Version, "groupPriorityMinimum": s.GroupPriority, "versionPriority": s.VersionPriority},
	}
}
