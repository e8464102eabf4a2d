package app

import (
	"context"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/flowcontrol"
	"binnacle/services/apiserver/internal/objects"
	"binnacle/services/apiserver/internal/server"
)

// flowSources are the objects that flow control goes by, as the cache has them.
type flowSources struct {
	schemas *objects.Derived[*flowcontrolv1.FlowSchema, *[]*flowcontrolv1.FlowSchema]
	levels  *objects.Derived[*flowcontrolv1.PriorityLevelConfiguration, *[]*flowcontrolv1.PriorityLevelConfiguration]

	mu       sync.Mutex
	ofSchema *[]*flowcontrolv1.FlowSchema
	ofLevels *[]*flowcontrolv1.PriorityLevelConfiguration
	config   *flowcontrol.Config
}

// current compiles the configuration when an object has changed.
func (f *flowSources) current(ctx context.Context) (*flowcontrol.Config, error) {
	schemas, err := f.schemas.Get(ctx)
	if err != nil {
		return nil, err
	}
	levels, err := f.levels.Get(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.config == nil || schemas != f.ofSchema || levels != f.ofLevels {
		f.config, f.ofSchema, f.ofLevels = flowcontrol.Compile(*schemas, *levels), schemas, levels
	}
	return f.config, nil
}

func flowResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: name}
}

// buildFlow makes what shares the server among its clients, unless it is off.
func (p *parts) buildFlow() *flowcontrol.Controller {
	seats := p.options.MaxInFlight + p.options.MaxMutatingInFlight
	if !p.options.PriorityAndFairness || seats == 0 {
		return nil
	}
	kind := func(name string) objects.Kind {
		return p.lookup(flowcontrolv1.SchemeGroupVersion.WithResource(name))
	}
	o := p.objects(false)
	sources := &flowSources{
		schemas: &objects.Derived[*flowcontrolv1.FlowSchema, *[]*flowcontrolv1.FlowSchema]{
			Objects: o, Kind: kind("flowschemas"), Derive: func(all []*flowcontrolv1.FlowSchema) *[]*flowcontrolv1.FlowSchema { return &all },
		},
		levels: &objects.Derived[*flowcontrolv1.PriorityLevelConfiguration, *[]*flowcontrolv1.PriorityLevelConfiguration]{
			Objects: o, Kind: kind("prioritylevelconfigurations"), Derive: func(all []*flowcontrolv1.PriorityLevelConfiguration) *[]*flowcontrolv1.PriorityLevelConfiguration {
				return &all
			},
		},
	}
	return flowcontrol.New(flowcontrol.Options{
		Seats: seats, Config: sources.current, Always: server.NeverRefused,
		MaxWait: 15 * time.Second, Metrics: flowcontrol.NewMetrics(p.metrics, p.options.MaxInFlight, p.options.MaxMutatingInFlight, time.Now),
	})
}

// flowSettled waits until requests are judged by what was written.
func (p *parts) flowSettled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, flowSettleTime)
	defer cancel()
	_ = p.cache.WaitFor(ctx, revision) // bounded: it counts later then
}

const flowSettleTime = 2 * time.Second
