package build

import (
	"errors"
	"net/http"
	"time"

	"binnacle/libs/features"
	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
)

// etcdCheckTTL is how long a result of the etcd check is shared. Anonymous clients may request the
// health checks.
const etcdCheckTTL = time.Second

// readiness reports which parts of the server are up.
type readiness struct {
	gates       *features.Gates
	stores      *stores
	caches      *caches
	custom      *customResources
	security    *security
	delegates   *delegates
	controllers *controllers
}

// addHealthChecks adds the health checks in the order in which clients see them.
func (r *readiness) addHealthChecks(h *health.Registry, o *config.Options) {
	h.Add("log", func(*http.Request) error { return nil })
	etcd := health.Shared(o.Etcd.HealthTimeout, etcdCheckTTL, r.stores.store.Ping)
	h.Add("etcd", etcd)
	if o.Etcd.ReadyTimeout != o.Etcd.HealthTimeout {
		etcd = health.Shared(o.Etcd.ReadyTimeout, etcdCheckTTL, r.stores.store.Ping)
	}
	h.Add("etcd-readiness", etcd, health.Readyz)
	r.stores.overrideClusters.addChecks(h)
	encryptionChecks(h, r.stores.encryptionConfig, o.Encryption.Reload)
	h.Add("informer-sync", func(req *http.Request) error { return errors.Join(r.synced(), r.stores.overrideClusters.synced(req)) }, health.Readyz)
	h.Add("fan-out", func(req *http.Request) error { return r.stores.fanout.Check(req.Context()) }, health.Readyz)
	r.addStartChecks(h, o.Encryption.Reload)
}

// synced returns an error until the content of the store is loaded.
func (r *readiness) synced() error {
	if !r.caches.cache.Ready() || !r.custom.informer.Synced() {
		return watchcache.ErrNotReady
	}
	return r.security.authz.policy.Check(nil)
}

// reloading reports whether a store went back to an older revision and is not loaded again yet. It
// considers the main store and the store of the requested resource.
func (r *readiness) reloading(op *requestinfo.Info) bool {
	if r.caches.cache.Era() > 0 && r.synced() != nil {
		return true
	}
	c := r.caches.resourceClusters[op.GVR().GroupResource()]
	return c != nil && c.cache.Era() > 0 && !c.cache.Ready()
}
