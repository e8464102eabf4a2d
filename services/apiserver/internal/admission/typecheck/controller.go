package typecheck

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
)

// Manager is the field manager under which a Controller writes statuses.
const Manager = "validatingadmissionpolicy-status"

// Client writes policies with the identity of the server.
type Client interface {
	// ApplyStatus applies the desired status of a policy by server-side apply. It fails if another
	// replica, which may know newer definitions, has written the policy since.
	ApplyStatus(ctx context.Context, policy *admissionregistrationv1.ValidatingAdmissionPolicy, desired admissionregistrationv1.ValidatingAdmissionPolicyStatus) error
}

// Config holds the dependencies of a Controller.
type Config struct {
	// Policies is the watch cache of policies. Decode decodes an entry.
	Policies *watchcache.Store
	Decode   func(*objects.Entry) (*admissionregistrationv1.ValidatingAdmissionPolicy, error)
	// Schemas returns the schemas of the served kinds. WaitForRevision waits until they contain the
	// definitions up to a revision.
	Schemas         func() Schemas
	WaitForRevision func(ctx context.Context, revision int64)
	// Compiler returns the compiler for expressions. It is not called before the first check.
	Compiler func() (*expressions.Compiler, error)
	Client   Client
	Logger   *slog.Logger
}

// Controller keeps the type checking results in the statuses of all policies up to date.
type Controller struct {
	Config
	informer *informer.Informer

	// The informer calls replace and apply one at a time, so these fields need no lock. They
	// contain the names of policies.
	due    map[string]bool          // policies to check
	failed map[string]bool          // policies whose status could not be written; retried later
	done   map[string]checkedPolicy // all other policies, as they were checked

	mu sync.Mutex // leaf lock
	// redefined holds the resources whose definitions have changed since the last check.
	redefined map[schema.GroupResource]bool
}

// checkedPolicy identifies the spec of a policy that was checked.
type checkedPolicy struct {
	uid        types.UID
	generation int64
}

// retryPause is how long the controller waits before it retries a failed write.
const retryPause = time.Second

// New returns a Controller. Start it with Run.
func New(c Config) *Controller {
	controller := &Controller{Config: c, redefined: map[schema.GroupResource]bool{}}
	controller.informer = informer.New(informer.Config{Store: c.Policies, Replace: controller.replace, Apply: controller.apply})
	return controller
}

// Redefined records resources whose definitions were changed or removed. The controller then checks
// the policies that may match them again. It is safe for concurrent use.
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

// Run updates statuses until ctx is canceled or the watch cache stops.
func (c *Controller) Run(ctx context.Context) error {
	return c.informer.Run(ctx)
}

// replace checks all policies. The informer calls it at the start and after the watch cache was
// reloaded.
func (c *Controller) replace(ctx context.Context, policies []*objects.Entry, revision int64) {
	c.due = map[string]bool{}
	c.failed = map[string]bool{}
	c.done = map[string]checkedPolicy{}
	for _, e := range policies {
		c.due[e.Name()] = true
	}
	c.checkDue(ctx, revision)
}

// apply checks the changed policies, policies that match changed definitions, and policies
// whose status could not be written. The informer calls it after changes and after Trigger.
func (c *Controller) apply(ctx context.Context, changes []watchcache.Event, revision int64) {
	for _, ev := range changes {
		if ev.Type == watchcache.Deleted {
			delete(c.done, ev.Entry.Name())
		} else {
			c.due[ev.Entry.Name()] = true
		}
	}
	c.checkDue(ctx, revision)
}

// checkDue checks the due policies and writes their statuses. The schemas that it uses contain
// the definitions up to at least revision.
func (c *Controller) checkDue(ctx context.Context, revision int64) {
	maps.Copy(c.due, c.failed)
	clear(c.failed)
	c.scheduleRedefined()
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
	checker := newChecker(compiler, c.Schemas())
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

// scheduleRedefined adds the policies that may match a changed definition to c.due.
func (c *Controller) scheduleRedefined() {
	c.mu.Lock()
	redefined := c.redefined
	c.redefined = map[schema.GroupResource]bool{}
	c.mu.Unlock()
	if len(redefined) == 0 {
		return
	}
	c.Policies.Snapshot().Ascend(c.Policies.Prefix(), "", func(e *objects.Entry) bool {
		if _, ok := c.done[e.Name()]; !ok {
			return true // it is due already, or an event will make it due
		}
		policy, err := c.Decode(e)
		if err != nil {
			return true // writeStatus reports the error when the policy is due
		}
		for resource := range redefined {
			if mayUse(&policy.Spec, resource) {
				delete(c.done, e.Name())
				c.due[e.Name()] = true
				break
			}
		}
		return true
	})
}

// writeStatus checks one policy and writes its status if it is not up to date. After it has checked
// a generation, it does not undo changes of the warnings by other writers.
func (c *Controller) writeStatus(ctx context.Context, checker *checker, name string) error {
	e, ok := c.Policies.Get(c.Policies.Prefix() + name)
	if !ok {
		return nil
	}
	policy, err := c.Decode(e)
	if err != nil {
		c.Logger.Error("an admission policy cannot be read; its types are not checked", "policy", name, "error", err)
		return nil
	}
	state := checkedPolicy{uid: policy.UID, generation: policy.Generation}
	if c.done[name] == state && policy.Status.ObservedGeneration == policy.Generation {
		return nil
	}
	warnings, err := checker.warningsWithoutPanic(&policy.Spec)
	if err != nil {
		c.Logger.Error("the types of an admission policy cannot be checked", "policy", name, "error", err)
		c.done[name] = state
		return nil
	}
	var current []admissionregistrationv1.ExpressionWarning
	if policy.Status.TypeChecking != nil { // nil if an empty list was applied before
		current = policy.Status.TypeChecking.ExpressionWarnings
	}
	if policy.Status.ObservedGeneration != policy.Generation || !equalWarnings(current, warnings) {
		if err := c.Client.ApplyStatus(ctx, policy, statusFor(policy, warnings)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	c.done[name] = state
	return nil
}

// warningsWithoutPanic is warnings, but it converts a panic of the CEL compiler into an error,
// because expressions are arbitrary user input.
func (c *checker) warningsWithoutPanic(
	policy *admissionregistrationv1.ValidatingAdmissionPolicySpec,
) (warnings []admissionregistrationv1.ExpressionWarning, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.warnings(policy), nil
}

// statusFor returns the desired status of a policy.
func statusFor(
	policy *admissionregistrationv1.ValidatingAdmissionPolicy,
	warnings []admissionregistrationv1.ExpressionWarning,
) admissionregistrationv1.ValidatingAdmissionPolicyStatus {
	return admissionregistrationv1.ValidatingAdmissionPolicyStatus{
		ObservedGeneration: policy.Generation,
		TypeChecking:       &admissionregistrationv1.TypeChecking{ExpressionWarnings: warnings},
	}
}
