package typecheck

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// Manager is the field manager of a Controller.
const Manager = "validatingadmissionpolicy-status"

// Client writes policies as the server itself.
type Client interface {
	// ApplyStatus applies the wanted status of a policy.
	ApplyStatus(ctx context.Context, name string, desired *admissionapply.ValidatingAdmissionPolicyApplyConfiguration) error
}

// Config holds the dependencies of a Controller.
type Config struct {
	// Policies is the watch cache of policies. Decode decodes an entry.
	Policies *watchcache.Store
	Decode   func(*objects.Entry) (*admissionv1.ValidatingAdmissionPolicy, error)
	// Schemas returns the schemas of the served kinds. WaitForRevision waits until they contain the
	// definitions up to a revision.
	Schemas         func() Schemas
	WaitForRevision func(ctx context.Context, revision int64)
	Compiler        func() (*expressions.Compiler, error)
	Client          Client
	Logger          *slog.Logger
}

// Controller updates the statuses of all policies.
type Controller struct {
	Config
	informer *informer.Informer
	// due holds the names of the policies to check, failed those whose status could not be written.
	// done holds the checked state of all other policies.
	due, failed map[string]bool
	done        map[string]checked

	mu sync.Mutex // leaf lock
	// redefined holds the resources whose definition changed since the last check.
	redefined map[schema.GroupResource]bool
}

// checked is the checked state of a policy.
type checked struct {
	uid        types.UID
	generation int64
}

// retryPause is the pause before another attempt to write a status.
const retryPause = time.Second

// New returns a Controller. It works while Run runs.
func New(c Config) *Controller {
	controller := &Controller{Config: c, redefined: map[schema.GroupResource]bool{}}
	controller.informer = informer.New(informer.Config{Store: c.Policies, Replace: controller.replace, Apply: controller.apply})
	return controller
}

// Redefined reports resources whose definition changed or was removed.
func (c *Controller) Redefined(resources []schema.GroupResource) {
	c.mu.Lock()
	for _, r := range resources {
		c.redefined[r] = true
	}
	c.mu.Unlock()
	if len(resources) > 0 {
		c.informer.Trigger()
	}
}

// Run updates statuses until ctx ends or the watch cache stops.
func (c *Controller) Run(ctx context.Context) error {
	return c.informer.Run(ctx)
}

// replace checks all policies.
func (c *Controller) replace(ctx context.Context, policies []*objects.Entry, revision int64) {
	c.due = map[string]bool{}
	c.failed = map[string]bool{}
	c.done = map[string]checked{}
	for _, e := range policies {
		c.due[e.Name()] = true
	}
	c.update(ctx, revision)
}

// apply checks changed policies, those that match changed definitions, and those whose status could
// not be written.
func (c *Controller) apply(ctx context.Context, changes []watchcache.Event, revision int64) {
	for _, ev := range changes {
		if ev.Type == watchcache.Deleted {
			delete(c.done, ev.Entry.Name())
		} else {
			c.due[ev.Entry.Name()] = true
		}
	}
	c.update(ctx, revision)
}

// update checks the due policies against definitions of at least the given revision.
func (c *Controller) update(ctx context.Context, revision int64) {
	maps.Copy(c.due, c.failed)
	clear(c.failed)
	c.recheckRedefined()
	if len(c.due) == 0 {
		return
	}
	c.WaitForRevision(ctx, revision)
	compiler, err := c.Compiler()
	if err != nil {
		c.Logger.Error("the types of admission policies cannot be checked", "error", err)
		clear(c.due)
		return
	}
	checker := newCheck(compiler, c.Schemas())
	for _, name := range slices.Sorted(maps.Keys(c.due)) {
		err := c.writeStatus(ctx, checker, name)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			level := slog.LevelError
			if apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) { // the store is loading, or the policy has changed
				level = slog.LevelDebug
			}
			c.Logger.Log(ctx, level, "failed to write the status of an admission policy; retrying", "policy", name, "error", err)
			c.failed[name] = true
		}
	}
	clear(c.due)
	if len(c.failed) > 0 {
		c.informer.TriggerAfter(retryPause)
	}
}

// recheckRedefined adds the policies that may match a resource whose definition changed.
func (c *Controller) recheckRedefined() {
	c.mu.Lock()
	redefined := c.redefined
	c.redefined = map[schema.GroupResource]bool{}
	c.mu.Unlock()
	if len(redefined) == 0 {
		return
	}
	c.Policies.Snapshot().Ascend(c.Policies.Prefix(), "", func(e *objects.Entry) bool {
		if _, ok := c.done[e.Name()]; !ok {
			return true // due already, or an event will follow
		}
		p, err := c.Decode(e)
		if err != nil {
			return true // reported when it is due
		}
		for r := range redefined {
			if mayUse(&p.Spec, r) {
				delete(c.done, e.Name())
				c.due[e.Name()] = true
				break
			}
		}
		return true
	})
}

// writeStatus writes the status of one policy if it differs from the wanted one. It does not undo
// later changes by other writers.
func (c *Controller) writeStatus(ctx context.Context, checker *check, name string) error {
	e, ok := c.Policies.Get(c.Policies.Prefix() + name)
	if !ok {
		return nil
	}
	p, err := c.Decode(e)
	if err != nil {
		c.Logger.Error("an admission policy cannot be read; its types are not checked", "policy", name, "error", err)
		return nil
	}
	state := checked{p.UID, p.Generation}
	if c.done[name] == state && p.Status.ObservedGeneration == p.Generation {
		return nil
	}
	warnings, err := checker.recoverPanics(&p.Spec)
	if err != nil {
		c.Logger.Error("the types of an admission policy cannot be checked", "policy", name, "error", err)
		c.done[name] = state
		return nil
	}
	var current []admissionv1.ExpressionWarning
	if p.Status.TypeChecking != nil { // applying an empty list in place of warnings removes it
		current = p.Status.TypeChecking.ExpressionWarnings
	}
	if p.Status.ObservedGeneration != p.Generation || !equalWarnings(current, warnings) {
		if err := c.Client.ApplyStatus(ctx, name, status(p, warnings)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	c.done[name] = state
	return nil
}

// recoverPanics returns the result of warnings. It converts a panic of the compiler into an error,
// because the expressions are arbitrary user input.
func (c *check) recoverPanics(s *admissionv1.ValidatingAdmissionPolicySpec) (w []admissionv1.ExpressionWarning, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	return c.warnings(s), nil
}

// status returns the wanted status for exactly this state of a policy. Another replica with newer
// definitions may have written since.
func status(p *admissionv1.ValidatingAdmissionPolicy, warnings []admissionv1.ExpressionWarning) *admissionapply.ValidatingAdmissionPolicyApplyConfiguration {
	checking := admissionapply.TypeChecking()
	for _, w := range warnings {
		checking.WithExpressionWarnings(admissionapply.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	return admissionapply.ValidatingAdmissionPolicy(p.Name).WithUID(p.UID).WithResourceVersion(p.ResourceVersion).
		WithStatus(admissionapply.ValidatingAdmissionPolicyStatus().WithObservedGeneration(p.Generation).WithTypeChecking(checking))
}
