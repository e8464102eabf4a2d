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

// flowConfig has flow control, and the status of flow schemas, go by the objects that
// the cache has. Requests go on by what was made last while what changed is compiled,
// by one at a time.
type flowConfig struct {
	levels   *lister.Follower[*flowcontrolv1.PriorityLevelConfiguration]
	schemas  *lister.Follower[*flowcontrolv1.FlowSchema]
	compiler *flowcontrol.Compiler
	control  *flowcontrol.Controller // nil when it is off
	dangling *bootstrap.Dangling
	turn     chan struct{} // of who compiles
}

// update returns when what the cache had at its call counts. An object that cannot be
// decoded counts as it was before, which is the error.
func (f *flowConfig) update(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.turn }()
	err := f.levels.Update(ctx)
	if f.levels.Begun() { // else schemas would lead nowhere
		err = errors.Join(err, f.schemas.Update(ctx))
	}
	if f.control != nil && f.levels.Begun() && f.schemas.Begun() {
		f.control.SetConfig(f.compiler.Config())
	}
	return err
}

// follow takes up what comes with the stream until ctx ends.
func (f *flowConfig) follow(ctx context.Context, changed <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			_ = f.update(ctx) // what cannot be read is told of where it is read
		}
	}
}

func flowResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: name}
}

// buildFlow makes what shares the server among its clients, unless it is off.
func (p *parts) buildFlow() {
	kind := func(name string) lister.Kind {
		return p.lookup(flowcontrolv1.SchemeGroupVersion.WithResource(name))
	}
	f := &flowConfig{
		levels:   &lister.Follower[*flowcontrolv1.PriorityLevelConfiguration]{Objects: p.objects(false), Kind: kind("prioritylevelconfigurations")},
		schemas:  &lister.Follower[*flowcontrolv1.FlowSchema]{Objects: p.objects(false), Kind: kind("flowschemas")},
		compiler: flowcontrol.NewCompiler(), dangling: bootstrap.NewDangling(p.loopback, p.log), turn: make(chan struct{}, 1),
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

// flowSettled waits until requests are judged by what was written.
func (p *parts) flowSettled(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, flowSettleTime)
	defer cancel()
	// Both are bounded: it counts later then.
	if p.cache.WaitFor(ctx, revision) == nil {
		_ = p.flowConfig.update(ctx)
	}
}

const flowSettleTime = 2 * time.Second
