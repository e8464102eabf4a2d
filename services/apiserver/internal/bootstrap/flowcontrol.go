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
	"binnacle/services/apiserver/internal/loopback"
	"binnacle/services/apiserver/internal/registry"
)

//go:embed flowcontrol-defaults.json
var flowDefaults []byte

const (
	// autoUpdateSpec on a level or schema says whether the server keeps its spec.
	autoUpdateSpec = flowcontrolv1.AutoUpdateAnnotationKey
	// flowProducer and flowConsumer are the field managers of specs and statuses.
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
	// flowAtOnce bounds the writes under way.
	flowAtOnce = 8
)

// flowObjects are levels and schemas.
type flowObjects struct {
	Levels  []flowcontrolv1.PriorityLevelConfiguration
	Schemas []flowcontrolv1.FlowSchema
}

// flowConfig makes the mandatory and the suggested levels and schemas, gives
// back their specs to those that the server keeps, and removes what claims to be
// kept by it and is not.
func (b *Bootstrap) flowConfig(ctx context.Context) error {
	want, err := defaultFlows()
	if err != nil {
		return err
	}
	live, err := liveFlows(ctx, b.API)
	if err != nil {
		return err
	}
	api := b.API.As(flowProducer)
	levels := keptOf(api, "prioritylevelconfigurations", pointers(want.Levels), pointers(live.Levels), reviseLevel)
	if err := levels.keep(ctx); err != nil {
		return err
	}
	return keptOf(api, "flowschemas", pointers(want.Schemas), pointers(live.Schemas), reviseSchema).keep(ctx)
}

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

func liveFlows(ctx context.Context, c *loopback.Client) (*flowObjects, error) {
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

func flowPath(resource string) loopback.Ref {
	return loopback.Of(flowcontrolv1.GroupName, "v1", resource, "")
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// isMandatory names the levels and schemas without which no request can be
// classified; nobody can tell the server to leave their specs alone.
func isMandatory(name string) bool {
	return name == flowcontrolv1.FlowSchemaNameExempt || name == flowcontrolv1.FlowSchemaNameCatchAll
}

// reviseLevel gives a level its spec and tells whether it had another one. The
// shares of the exempt level are the administrator's.
func reviseLevel(live, want *flowcontrolv1.PriorityLevelConfiguration) bool {
	spec := want.Spec
	if live.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt && live.Spec.Exempt != nil {
		spec.Exempt = live.Spec.Exempt
	}
	changed := !semantic.Equal(live.Spec, spec)
	live.Spec = spec
	return changed
}

// reviseSchema gives a schema its spec and tells whether it had another one.
func reviseSchema(live, want *flowcontrolv1.FlowSchema) bool {
	changed := !semantic.Equal(live.Spec, want.Spec)
	live.Spec = want.Spec
	return changed
}

// kept are the objects of a resource that the server keeps.
type kept[T registry.Object] struct {
	api        *loopback.Client
	collection loopback.Ref
	want       []T
	live       map[string]T
	// revise gives the live object what is wanted and tells whether that was
	// something else.
	revise func(live, want T) bool
}

func keptOf[T registry.Object](api *loopback.Client, resource string, want, live []T, revise func(live, want T) bool) *kept[T] {
	k := &kept[T]{api: api, collection: flowPath(resource), want: want, live: map[string]T{}, revise: revise}
	for _, o := range live {
		k.live[o.GetName()] = o
	}
	return k
}

// keep makes what is missing, mends what differs, removes what is not wanted. A
// change that comes in between is looked at the next time.
func (k *kept[T]) keep(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(flowAtOnce)
	wanted := map[string]bool{}
	for _, want := range k.want {
		wanted[want.GetName()] = true
	}
	for name, live := range k.live { // before those that are mended are written to
		if on, err := strconv.ParseBool(live.GetAnnotations()[autoUpdateSpec]); !wanted[name] && err == nil && on {
			group.Go(func() error { return k.remove(ctx, live) })
		}
	}
	for _, want := range k.want {
		group.Go(func() error { return k.mend(ctx, want) })
	}
	return group.Wait()
}

func (k *kept[T]) mend(ctx context.Context, want T) error {
	live, ok := k.live[want.GetName()]
	if !ok {
		err := k.api.Create(ctx, k.collection, want)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	keeps, said := k.keeps(live)
	changed := !said
	if keeps {
		changed = k.revise(live, want) || changed
	}
	if !changed {
		return nil
	}
	if !said {
		annotations := live.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[autoUpdateSpec] = strconv.FormatBool(keeps)
		live.SetAnnotations(annotations)
	}
	err := k.api.Update(ctx, k.collection.Named(want.GetName()), live, nil)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// keeps tells whether the server keeps the spec of an object, and whether the
// object says so. One that does not say is kept while nobody has changed it.
func (k *kept[T]) keeps(live T) (keeps, said bool) {
	keeps, err := strconv.ParseBool(live.GetAnnotations()[autoUpdateSpec])
	said = err == nil
	switch {
	case isMandatory(live.GetName()):
		return true, said
	case said:
		return keeps, true
	}
	return live.GetGeneration() == 1, false
}

func (k *kept[T]) remove(ctx context.Context, live T) error {
	version := live.GetResourceVersion()
	o := &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	}
	err := k.api.Delete(ctx, k.collection.Named(live.GetName()), o)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
