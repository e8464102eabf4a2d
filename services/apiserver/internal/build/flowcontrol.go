package build

import (
	"context"
	"errors"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server"
)

// flowConfig configures flow control and the statuses of flow schemas from the cached objects. One
// update runs at a time. Requests use the previous configuration until an update completes.
type flowConfig struct {
	levels   *lister.Follower[*flowcontrolv1.PriorityLevelConfiguration]
	schemas  *lister.Follower[*flowcontrolv1.FlowSchema]
	compiler *flowcontrol.Compiler
	control  *flowcontrol.Controller // nil if flow control is off
	dangling *bootstrap.Dangling
	updating chan struct{} // capacity 1; held during an update
}

// update applies everything that the cache had when it was called. An object that cannot be decoded
// keeps its previous configuration and causes an error.
func (f *flowConfig) update(ctx context.Context) error {
	select {
	case f.updating <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.updating }()
	err := f.levels.Update(ctx)
	if f.levels.Begun() { // schemas refer to levels
		err = errors.Join(err, f.schemas.Update(ctx))
	}
	if f.control != nil && f.levels.Begun() && f.schemas.Begun() {
		f.control.SetConfig(f.compiler.Config())
	}
	return err
}

// follow updates after each change until ctx ends.
func (f *flowConfig) follow(ctx context.Context, changed <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			_ = f.update(ctx) // the reader of an object logs errors
		}
	}
}

func flowResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: name}
}

// buildFlow creates flow control, unless it is disabled.
func (p *parts) buildFlow() {
	kind := func(name string) lister.Kind {
		return p.lookup(flowcontrolv1.SchemeGroupVersion.WithResource(name))
	}
	f := &flowConfig{
		levels:   &lister.Follower[*flowcontrolv1.PriorityLevelConfiguration]{Objects: p.objects(false), Kind: kind("prioritylevelconfigurations")},
		schemas:  &lister.Follower[*flowcontrolv1.FlowSchema]{Objects: p.objects(false), Kind: kind("flowschemas")},
		compiler: flowcontrol.NewCompiler(), dangling: bootstrap.NewDangling(p.client, p.log), updating: make(chan struct{}, 1),
	}
	f.levels.Put = func(l *flowcontrolv1.PriorityLevelConfiguration) {
		f.compiler.PutLevel(l)
		f.dangling.SetLevel(l.Name, true)
	}
	f.levels.Drop = func(name string) {
		f.compiler.DropLevel(name)
		f.dangling.SetLevel(name, false)
	}
	f.schemas.Put = func(s *flowcontrolv1.FlowSchema) {
		f.compiler.PutSchema(s)
		f.dangling.PutSchema(s)
	}
	f.schemas.Drop = func(name string) {
		f.compiler.DropSchema(name)
		f.dangling.DropSchema(name)
	}
	p.flowConfig = f
	seats := p.options.MaxInFlight + p.options.MaxMutatingInFlight
	if !p.options.PriorityAndFairness || seats == 0 {
		return
	}
	f.control = flowcontrol.New(flowcontrol.Options{
		Seats: seats, LoadConfig: func(ctx context.Context) { _ = f.update(ctx) }, IsExempt: server.Exempt,
		MaxWait: 15 * time.Second, Metrics: flowcontrol.NewMetrics(p.metrics, p.options.MaxInFlight, p.options.MaxMutatingInFlight, time.Now),
	})
	p.flow = f.control
}

// waitForFlowConfig waits until flow control has applied a revision.
func (p *parts) waitForFlowConfig(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, flowSettleTime)
	defer cancel()
	// Best effort: after the timeout, the change takes effect later.
	if p.cache.WaitFor(ctx, revision) == nil {
		_ = p.flowConfig.update(ctx)
	}
}

const flowSettleTime = 2 * time.Second
