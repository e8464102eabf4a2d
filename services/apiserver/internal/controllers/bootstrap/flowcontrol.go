package bootstrap

import (
	"context"
	_ "embed" // the default levels and schemas
	"encoding/json"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

//go:embed flowcontrol-defaults.json
var flowDefaults []byte

const (
	// autoUpdateSpec is the annotation of a level or schema that says whether the server maintains
	// its spec ("true" or "false").
	autoUpdateSpec = flowcontrolv1.AutoUpdateAnnotationKey
	// flowProducer and flowConsumer are the field managers of specs and statuses.
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
	// maxFlowWrites is the maximum number of concurrent writes.
	maxFlowWrites = 8
)

// flowObjects holds priority levels and flow schemas.
type flowObjects struct {
	Levels  []flowcontrolv1.PriorityLevelConfiguration
	Schemas []flowcontrolv1.FlowSchema
}

// reconcileFlowConfig creates the mandatory and the suggested levels and schemas, restores the
// specs of objects that the server maintains, and deletes objects that are annotated as maintained
// but are no longer defaults.
func (b *Bootstrap) reconcileFlowConfig(ctx context.Context) error {
	target, err := defaultFlows()
	if err != nil {
		return err
	}
	live, err := liveFlows(ctx, b.API)
	if err != nil {
		return err
	}
	api := b.API.WithManager(flowProducer)
	levels := newManagedObjects(api, "prioritylevelconfigurations", pointers(target.Levels), pointers(live.Levels), setLevelSpec)
	if err := levels.reconcileAll(ctx); err != nil {
		return err
	}
	return newManagedObjects(api, "flowschemas", pointers(target.Schemas), pointers(live.Schemas), setSchemaSpec).reconcileAll(ctx)
}

// defaultFlows returns the default levels and schemas, from flowcontrol-defaults.json.
func defaultFlows() (*flowObjects, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(flowDefaults, &all); err != nil {
		return nil, fmt.Errorf("default flow control: %w", err)
	}
	out := &flowObjects{}
	for _, raw := range all {
		var kind metav1.TypeMeta
		err := json.Unmarshal(raw, &kind)
		if err != nil {
			return nil, fmt.Errorf("default flow control: %w", err)
		}
		switch kind.Kind {
		case "FlowSchema":
			out.Schemas = append(out.Schemas, flowcontrolv1.FlowSchema{})
			err = json.Unmarshal(raw, &out.Schemas[len(out.Schemas)-1])
		default:
			out.Levels = append(out.Levels, flowcontrolv1.PriorityLevelConfiguration{})
			err = json.Unmarshal(raw, &out.Levels[len(out.Levels)-1])
		}
		if err != nil {
			return nil, fmt.Errorf("default flow control: %w", err)
		}
	}
	return out, nil
}

// liveFlows reads the stored levels and schemas.
func liveFlows(ctx context.Context, c *internalclient.Client) (*flowObjects, error) {
	var levels flowcontrolv1.PriorityLevelConfigurationList
	var schemas flowcontrolv1.FlowSchemaList
	if err := c.List(ctx, flowPath("prioritylevelconfigurations"), nil, &levels); err != nil {
		return nil, err
	}
	if err := c.List(ctx, flowPath("flowschemas"), nil, &schemas); err != nil {
		return nil, err
	}
	return &flowObjects{Levels: levels.Items, Schemas: schemas.Items}, nil
}

func flowPath(resource string) internalclient.Ref {
	return internalclient.Collection(flowcontrolv1.GroupName, "v1", resource, "")
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// isMandatory reports whether a level or schema of that name is mandatory: without it, requests
// could not be classified. The server maintains its spec regardless of the annotation.
func isMandatory(name string) bool {
	return name == flowcontrolv1.FlowSchemaNameExempt || name == flowcontrolv1.FlowSchemaNameCatchAll
}

// setLevelSpec sets the spec of a level and reports whether it changed. It keeps the shares of the
// exempt level, which administrators may change.
func setLevelSpec(live, target *flowcontrolv1.PriorityLevelConfiguration) bool {
	spec := target.Spec
	if live.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt && live.Spec.Exempt != nil {
		spec.Exempt = live.Spec.Exempt
	}
	changed := !semantic.Equal(live.Spec, spec)
	live.Spec = spec
	return changed
}

// setSchemaSpec sets the spec of a schema and reports whether it changed.
func setSchemaSpec(live, target *flowcontrolv1.FlowSchema) bool {
	changed := !semantic.Equal(live.Spec, target.Spec)
	live.Spec = target.Spec
	return changed
}

// managedObjects reconciles the objects of one resource with the default ones.
type managedObjects[T registry.Object] struct {
	api        *internalclient.Client
	collection internalclient.Ref
	defaults   []T
	live       map[string]T // by name
	// setSpec sets the spec of live to the spec of target and reports whether it changed.
	setSpec func(live, target T) bool
}

// newManagedObjects returns a managedObjects for a resource. defaults and live are the default and
// the stored objects.
func newManagedObjects[T registry.Object](
	api *internalclient.Client,
	resource string,
	defaults, live []T,
	setSpec func(live, target T) bool,
) *managedObjects[T] {
	m := &managedObjects[T]{api: api, collection: flowPath(resource), defaults: defaults, live: map[string]T{}, setSpec: setSpec}
	for _, o := range live {
		m.live[o.GetName()] = o
	}
	return m
}

// reconcileAll creates missing objects, corrects changed ones, and deletes managed ones that are
// not defaults. It ignores conflicts; the next run sees the concurrent changes.
func (m *managedObjects[T]) reconcileAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxFlowWrites)
	isDefault := map[string]bool{}
	for _, target := range m.defaults {
		isDefault[target.GetName()] = true
	}
	for name, live := range m.live { // before reconcile changes live objects
		managed, err := strconv.ParseBool(live.GetAnnotations()[autoUpdateSpec])
		if !isDefault[name] && err == nil && managed {
			group.Go(func() error { return m.remove(ctx, live) })
		}
	}
	for _, target := range m.defaults {
		group.Go(func() error { return m.reconcile(ctx, target) })
	}
	return group.Wait()
}

// reconcile creates a default object, or corrects the stored one.
func (m *managedObjects[T]) reconcile(ctx context.Context, target T) error {
	live, ok := m.live[target.GetName()]
	if !ok {
		err := m.api.Create(ctx, m.collection, target)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	managed, annotated := m.isManaged(live)
	changed := !annotated
	if managed {
		changed = m.setSpec(live, target) || changed
	}
	if !changed {
		return nil
	}
	if !annotated {
		annotations := live.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[autoUpdateSpec] = strconv.FormatBool(managed)
		live.SetAnnotations(annotations)
	}
	err := m.api.Update(ctx, m.collection.Named(target.GetName()), live, nil)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isManaged reports whether the server maintains the spec of an object, and whether the object has
// the annotation autoUpdateSpec. Without the annotation, the server maintains the spec if no client
// has changed it since the creation (generation 1).
func (m *managedObjects[T]) isManaged(live T) (managed, annotated bool) {
	managed, err := strconv.ParseBool(live.GetAnnotations()[autoUpdateSpec])
	annotated = err == nil
	switch {
	case isMandatory(live.GetName()):
		return true, annotated
	case annotated:
		return managed, true
	}
	return live.GetGeneration() == 1, false
}

// remove deletes an object unless it changes concurrently.
func (m *managedObjects[T]) remove(ctx context.Context, live T) error {
	version := live.GetResourceVersion()
	o := &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	}
	err := m.api.Delete(ctx, m.collection.Named(live.GetName()), o)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
