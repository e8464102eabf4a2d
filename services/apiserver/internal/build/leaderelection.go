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

// newLeaderElection creates the coordinated leader election if its gate is enabled. It also runs if
// lease candidates are not served; there are none then.
func (p *parts) newLeaderElection(host string) *leaderelection.Keeper {
	if !p.options.Features.Enabled(features.CoordinatedLeaderElection) {
		return nil
	}
	return leaderelection.New(leaderelection.Config{API: p.client, Identity: host + "_" + uuid.NewString(), Logger: p.log, Now: time.Now})
}

// leaderElectionTasks returns tasks that elect leaders and follow leases and candidates.
func (p *parts) leaderElectionTasks() []task.Task {
	if p.leaderElection == nil {
		return nil
	}
	candidates := p.lookup(coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates")).Store
	leases := p.lookup(coordinationv1.SchemeGroupVersion.WithResource("leases")).Store
	return []task.Task{
		{Name: "leader election", Run: p.leaderElection.Run},
		{Name: "lease candidates", Run: func(ctx context.Context) error {
			return followNames(ctx, candidates, p.leaderElection.CandidateChanged)
		}},
		{Name: "leases of leader election", Run: func(ctx context.Context) error { return followNames(ctx, leases, p.leaderElection.LeaseChanged) }},
	}
}

// followNames calls handle with the name of every object of a resource that changes, until ctx
// ends.
func followNames(ctx context.Context, store *watchcache.Store, handle func(namespace, name string)) error {
	return followChanges(ctx, store, func(changes []watchcache.Event) {
		for _, e := range changes {
			if e.Entry != nil {
				handle(e.Entry.Namespace(), e.Entry.Name())
			}
		}
	})
}
