package build

import (
	"errors"
	"net/http"
	"time"

	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Anybody may ask for health, so asking etcd is shared.
const etcdCheckKept = time.Second

// checks adds the health checks in the order in which clients see them.
func (p *parts) checks() {
	p.health.Add("log", func(*http.Request) error { return nil })
	o := p.options.Etcd
	etcd := health.Shared(o.HealthTimeout, etcdCheckKept, p.store.Ping)
	p.health.Add("etcd", etcd)
	if o.ReadyTimeout != o.HealthTimeout {
		etcd = health.Shared(o.ReadyTimeout, etcdCheckKept, p.store.Ping)
	}
	p.health.Add("etcd-readiness", etcd, health.Readyz)
	p.otherChecks()
	p.encryptionChecks()
	p.health.Add("informer-sync", func(r *http.Request) error { return errors.Join(p.synced(), p.othersSynced(r)) }, health.Readyz)
	p.health.Add("fan-out", func(r *http.Request) error { return p.fanout.Check(r.Context()) }, health.Readyz)
	p.startChecks()
}

// synced tells what of the store's content is not loaded yet.
func (p *parts) synced() error {
	if !p.cache.Ready() || !p.follower.Synced() {
		return watchcache.ErrNotReady
	}
	return p.authz.policy.Check(nil)
}

// reloading tells that the store went back, and what it has now is not loaded yet: the main
// one, on which everything hangs, or that of what a request is about.
func (p *parts) reloading(op *requestinfo.Info) bool {
	if p.cache.Era() > 0 && p.synced() != nil {
		return true
	}
	c := p.keepers[op.GVR().GroupResource()]
	return c != nil && c.cache.Era() > 0 && !c.cache.Ready()
}
