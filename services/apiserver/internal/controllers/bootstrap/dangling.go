package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// danglingRetry is the delay before a failed write is retried.
const danglingRetry = time.Second

// A flow schema is written at most maxDanglingWrites times per danglingWindow. A further write
// waits for danglingPause plus a random time below danglingSpread. The limit bounds the writes of
// two replicas that disagree. The values are the same as in Kubernetes.
const (
	maxDanglingWrites = 6
	danglingWindow    = time.Minute
	danglingPause     = 30 * time.Second
	danglingSpread    = 45 * time.Second
)

// DanglingController maintains the condition Dangling in the status of every flow schema. The
// condition reports whether the schema's priority level is missing. PutSchema, DropSchema and
// SetLevel notify the controller of changes, and Run writes the conditions of the affected schemas.
// The methods are safe for concurrent use.
type DanglingController struct {
	API    *internalclient.Client
	Logger *slog.Logger
	Now    func() time.Time

	changed chan struct{} // receives a value when schemas are pending

	mu      sync.Mutex
	levels  map[string]bool        // names of existing priority levels
	schemas map[string]schemaState // by name
	pending map[string]bool        // names of schemas to evaluate
	// writes holds the times of recent writes by schema name.
	writes map[string][]time.Time
}

// schemaState holds the fields of a flow schema that its condition depends on.
type schemaState struct {
	uid        types.UID
	level      string
	conditions []flowcontrolv1.FlowSchemaCondition
}

// NewDanglingController returns a DanglingController without schemas and levels.
func NewDanglingController(api *internalclient.Client, log *slog.Logger) *DanglingController {
	return &DanglingController{
		API:     api,
		Logger:  log,
		Now:     time.Now,
		changed: make(chan struct{}, 1),
		levels:  map[string]bool{},
		schemas: map[string]schemaState{},
		pending: map[string]bool{},
		writes:  map[string][]time.Time{},
	}
}

// PutSchema adds or updates a flow schema.
func (d *DanglingController) PutSchema(s *flowcontrolv1.FlowSchema) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.schemas[s.Name] = schemaState{
		uid: s.UID, level: s.Spec.PriorityLevelConfiguration.Name, conditions: slices.Clone(s.Status.Conditions),
	}
	d.pending[s.Name] = true
	d.wake()
}

// DropSchema removes a flow schema.
func (d *DanglingController) DropSchema(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.schemas, name)
	delete(d.pending, name)
	delete(d.writes, name)
}

// SetLevel records whether a priority level exists.
func (d *DanglingController) SetLevel(name string, exists bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.levels[name] == exists {
		return
	}
	d.levels[name] = exists
	if !exists {
		delete(d.levels, name)
	}
	for schema, s := range d.schemas {
		if s.level == name {
			d.pending[schema] = true
		}
	}
	d.wake()
}

// wake signals Run if schemas are pending. The caller holds mu.
func (d *DanglingController) wake() {
	if len(d.pending) == 0 {
		return
	}
	select {
	case d.changed <- struct{}{}:
	default: // a signal is already pending
	}
}

// Run writes the conditions of pending schemas until ctx is canceled.
func (d *DanglingController) Run(ctx context.Context) error {
	retry := time.NewTimer(danglingRetry)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.changed:
		case <-retry.C:
		}
		limited, err := d.writePending(ctx)
		if limited {
			retry.Reset(danglingPause + rand.N(danglingSpread))
		}
		if err != nil && ctx.Err() == nil {
			level := slog.LevelError
			if apierrors.IsTooManyRequests(err) { // the caches are still loading
				level = slog.LevelDebug
			}
			d.Logger.Log(ctx, level, "failed to update the status of flow schemas; retrying", "error", err)
			retry.Reset(danglingRetry)
		}
	}
}

// writePending writes the conditions of pending schemas one at a time. A schema whose write fails
// stays pending, and the others are still written. limited reports whether a schema stays pending
// because it was written too often. first is the first error.
func (d *DanglingController) writePending(ctx context.Context) (limited bool, first error) {
	d.mu.Lock()
	names := slices.Sorted(maps.Keys(d.pending))
	d.mu.Unlock()
	for _, name := range names {
		state, levelExists, exists := d.takePending(name)
		if !exists {
			continue
		}
		target, changes := d.conditionToWrite(state, danglingCondition(state.level, levelExists))
		if !changes {
			continue
		}
		if !d.allowWrite(name) {
			d.requeue(name)
			limited = true
			continue
		}
		if err := d.applyCondition(ctx, name, state, target); err != nil && !apierrors.IsNotFound(err) {
			d.requeue(name)
			first = cmp.Or(first, err)
		}
	}
	return limited, first
}

// allowWrite reports whether a schema may be written now. If so, it counts the write.
func (d *DanglingController) allowWrite(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Now()
	recent := slices.DeleteFunc(d.writes[name], func(at time.Time) bool { return now.Sub(at) > danglingWindow })
	allowed := len(recent) < maxDanglingWrites
	if allowed {
		recent = append(recent, now)
	}
	d.writes[name] = recent
	return allowed
}

// takePending makes a schema no longer pending and returns it. levelExists reports whether its
// priority level exists, and exists whether the schema itself does.
func (d *DanglingController) takePending(name string) (state schemaState, levelExists, exists bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pending, name)
	state, exists = d.schemas[name]
	return state, d.levels[state.level], exists
}

// requeue makes a schema pending again, unless it was removed.
func (d *DanglingController) requeue(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, exists := d.schemas[name]; exists {
		d.pending[name] = true
	}
}

// danglingCondition returns the condition Dangling of a schema with a priority level, without its
// transition time.
func danglingCondition(level string, levelExists bool) flowcontrolv1.FlowSchemaCondition {
	if levelExists {
		return flowcontrolv1.FlowSchemaCondition{
			Type:    flowcontrolv1.FlowSchemaConditionDangling,
			Status:  flowcontrolv1.ConditionFalse,
			Reason:  "Found",
			Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level),
		}
	}
	return flowcontrolv1.FlowSchemaCondition{
		Type:   flowcontrolv1.FlowSchemaConditionDangling,
		Status: flowcontrolv1.ConditionTrue,
		Reason: "NotFound",
		Message: fmt.Sprintf(
			"This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object",
			level),
	}
}

// conditionToWrite returns target with its transition time: the current time if the status changes,
// otherwise the time of the existing condition. It returns false if the schema has the condition
// already.
func (d *DanglingController) conditionToWrite(
	state schemaState,
	target flowcontrolv1.FlowSchemaCondition,
) (flowcontrolv1.FlowSchemaCondition, bool) {
	target.LastTransitionTime = metav1.NewTime(d.Now().UTC().Truncate(time.Second))
	for _, condition := range state.conditions {
		if condition.Type != target.Type {
			continue
		}
		if condition.Status == target.Status {
			if condition.Reason == target.Reason && condition.Message == target.Message {
				return target, false
			}
			target.LastTransitionTime = condition.LastTransitionTime
		}
	}
	return target, true
}

// applyCondition writes a condition to the status of a schema by server-side apply.
func (d *DanglingController) applyCondition(
	ctx context.Context,
	name string,
	state schemaState,
	target flowcontrolv1.FlowSchemaCondition,
) error {
	desired := internalclient.NewStatus(flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
		internalclient.StatusMetadata{Name: name, UID: state.uid},
		flowcontrolv1.FlowSchemaStatus{Conditions: []flowcontrolv1.FlowSchemaCondition{target}})
	return d.API.WithManager(flowConsumer).Apply(ctx, flowPath("flowschemas").Named(name).Subresource("status"), desired)
}
