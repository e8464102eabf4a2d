package build

import (
	"context"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/controllers/leaderelection"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// newLeaderElection creates the coordinated leader election if its gate is enabled. It also runs if
// lease candidates are not served; there are none then.
func newLeaderElection(b *base, k *caches, client *internalclient.Client) *leaderelection.Controller {
	if !b.gates.Enabled(features.CoordinatedLeaderElection) {
		return nil
	}
	controller := leaderelection.New(leaderelection.Config{API: client, Identity: b.host + "_" + uuid.NewString(), Logger: b.log, Now: time.Now})
	candidates := k.lookup(coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates")).Store
	leases := k.lookup(coordinationv1.SchemeGroupVersion.WithResource("leases")).Store
	b.life.whileServing("leader election", controller.Run)
	b.life.whileServing("lease candidates", func(ctx context.Context) error { return followNames(ctx, candidates, controller.CandidateChanged) })
	b.life.whileServing("leases of leader election", func(ctx context.Context) error { return followNames(ctx, leases, controller.LeaseChanged) })
	return controller
}
