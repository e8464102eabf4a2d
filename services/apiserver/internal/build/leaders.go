package build

import (
	"context"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"binnacle/libs/features"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/controllers/leaderelection"
)

// newLeaders makes what chooses who leads, behind its gate. It works also where clients
// may not use lease candidates, and then there are none.
func (p *parts) newLeaders(host string) *leaderelection.Keeper {
	if !p.options.Features.Enabled(features.CoordinatedLeaderElection) {
		return nil
	}
	return leaderelection.New(leaderelection.Config{API: p.loopback, Identity: host + "_" + uuid.NewString(), Logger: p.log, Now: time.Now})
}

// leaderTasks choose leaders, and follow what that hangs on.
func (p *parts) leaderTasks() []task.Task {
	if p.leaders == nil {
		return nil
	}
	candidates := p.lookup(coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates")).Store
	held := p.lookup(coordinationv1.SchemeGroupVersion.WithResource("leases")).Store
	return []task.Task{
		{Name: "leader election", Run: p.leaders.Run},
		{Name: "lease candidates", Run: func(ctx context.Context) error { return tellWhich(ctx, candidates, p.leaders.CandidateChanged) }},
		{Name: "leases that are stood for", Run: func(ctx context.Context) error { return tellWhich(ctx, held, p.leaders.LeaseChanged) }},
	}
}

// tellWhich tells of every object of a resource that changes, until ctx ends.
func tellWhich(ctx context.Context, store *watchcache.Store, tell func(namespace, name string)) error {
	return tellChanges(ctx, store, func(changes []watchcache.Event) {
		for _, e := range changes {
			if e.Entry != nil {
				tell(e.Entry.Namespace(), e.Entry.Name())
			}
		}
	})
}
