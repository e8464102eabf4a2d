package build

import (
	"errors"
	"net/http"
	"time"

	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// etcdCheckTTL is how long a result of the etcd check is shared. Anonymous clients may request the
// health checks.
const etcdCheckTTL = time.Second

// addHealthChecks adds the health checks in the order in which clients see them.
func (p *parts) addHealthChecks() {
	p.health.Add("log", func(*http.Request) error { return nil })
	o := p.options.Etcd
	etcd := health.Shared(o.HealthTimeout, etcdCheckTTL, p.store.Ping)
	p.health.Add("etcd", etcd)
	if o.ReadyTimeout != o.HealthTimeout {
		etcd = health.Shared(o.ReadyTimeout, etcdCheckTTL, p.store.Ping)
	}
	p.health.Add("etcd-readiness", etcd, health.Readyz)
	p.stores.overrideClusters.addChecks(p.health)
	encryptionChecks(p.health, p.encryptionConfig, p.options.Encryption.Reload)
	p.health.Add("informer-sync", func(r *http.Request) error { return errors.Join(p.synced(), p.stores.overrideClusters.synced(r)) }, health.Readyz)
	p.health.Add("fan-out", func(r *http.Request) error { return p.fanout.Check(r.Context()) }, health.Readyz)
	p.startChecks()
}

// synced returns an error until the content of the store is loaded.
func (p *parts) synced() error {
	if !p.cache.Ready() || !p.definitionInformer.Synced() {
		return watchcache.ErrNotReady
	}
	return p.authz.policy.Check(nil)
}

// reloading reports whether a store went back to an older revision and is not loaded again yet. It
// considers the main store and the store of the requested resource.
func (p *parts) reloading(op *requestinfo.Info) bool {
	if p.cache.Era() > 0 && p.synced() != nil {
		return true
	}
	c := p.stores.resourceClusters[op.GVR().GroupResource()]
	return c != nil && c.cache.Era() > 0 && !c.cache.Ready()
}
