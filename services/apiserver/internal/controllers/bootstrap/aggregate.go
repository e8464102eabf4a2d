package bootstrap

import (
	"context"
	"log/slog"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// aggregationRetry is the delay after a failed write.
const aggregationRetry = time.Second

// Aggregator maintains the rules of aggregated cluster roles, so that they are correct without a
// controller manager. With one, both write the same rules.
type Aggregator struct {
	API    *internalclient.Client
	Policy interface{ Snapshot() *rbac.Snapshot }
	Logger *slog.Logger
	// Changed receives a value after changes of the policy.
	Changed <-chan struct{}
}

// Run maintains the rules until ctx ends.
func (g *Aggregator) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.Changed:
		case <-retry.C:
		}
		for name, rules := range g.Policy.Snapshot().Stale() {
			err := fill(ctx, g.API, name, rules)
			if err != nil && ctx.Err() == nil {
				if !apierrors.IsConflict(err) { // the change will arrive soon
					g.Logger.Error("failed to aggregate a cluster role; retrying", "clusterRole", name, "error", err)
				}
				retry.Reset(aggregationRetry)
			}
		}
	}
}

// fill writes the rules of a cluster role if it is still an aggregated one.
func fill(ctx context.Context, l *internalclient.Client, name string, rules []rbacv1.PolicyRule) error {
	path := internalclient.Collection(rbacv1.GroupName, "v1", "clusterroles", "").Named(name)
	var live rbacv1.ClusterRole
	if err := l.GetCached(ctx, path, &live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if live.AggregationRule == nil {
		return nil
	}
	live.Rules = rules
	return l.Update(ctx, path, &live, nil)
}
