package build

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"binnacle/libs/features"
	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/api/aggregation"
)

// errNotStarted is the failure of a health check whose part is not up yet.
var errNotStarted = errors.New("not finished")

// startCheck is the health check of a part that starts with the server. It has the name that
// kube-apiserver gives to the same work.
type startCheck struct {
	name  string
	check health.Check // nil leaves it out
}

// after returns a check that passes once a part is up. Parts stay up while the watch cache
// reloads: /livez must not fail for that.
func after(up func() bool) health.Check {
	return func(*http.Request) error {
		if !up() {
			return errNotStarted
		}
		return nil
	}
}

// afterIf returns after(up) if the part exists, and otherwise nil.
func afterIf(exists bool, up func() bool) health.Check {
	if !exists {
		return nil
	}
	return after(up)
}

// addStartChecks adds the checks of the parts that start with the server.
func (r *readiness) addStartChecks(h *health.Registry, reload bool) {
	for _, c := range slices.Concat(r.cacheChecks(reload), r.controllerChecks(), r.objectChecks(), r.aggregationChecks()) {
		if c.check != nil {
			h.Add("poststarthook/"+c.name, c.check)
		}
		if c.name == "kube-apiserver-autoregistration" {
			h.Add("autoregister-completion", r.registeredCheck())
		}
	}
}

// cacheChecks returns the checks of the watch cache, its readers, and the limits on requests.
func (r *readiness) cacheChecks(reload bool) []startCheck {
	flow := r.security.flow.control
	return []startCheck{
		{"start-apiserver-admission-initializer", after(func() bool { return r.caches.loaded() && r.custom.informer.Loaded() })},
		{"start-encryption-provider-config-automatic-reload", afterIf(reload, r.stores.encryptionConfig.Following)},
		{"generic-apiserver-start-informers", after(r.caches.loaded)},
		{"priority-and-fairness-config-consumer", afterIf(flow != nil, flow.Configured)},
		{"priority-and-fairness-filter", afterIf(flow != nil, flow.Running)},
		{"max-in-flight-filter", afterIf(flow == nil, func() bool { return true })},
		{"storage-object-count-tracker-hook", after(r.caches.loaded)},
		{"start-apiextensions-informers", after(r.caches.loaded)},
		{"start-apiextensions-controllers", after(r.custom.controller.Started)},
		{"crd-informer-synced", after(r.custom.informer.Loaded)},
	}
}

// controllerChecks returns the checks of controllers behind feature gates.
func (r *readiness) controllerChecks() []startCheck {
	var election, presence health.Check
	if r.controllers.leaderElection != nil {
		election = r.controllers.leaderElection.Check
	}
	if r.delegates.presence != nil {
		presence = r.delegates.presence.Check
	}
	namespaces, peers := r.controllers.bootstrap.Checks()["start-system-namespaces-controller"], r.delegates.peers != nil
	return []startCheck{
		{"start-system-namespaces-controller", namespaces},
		{"start-kube-apiserver-coordinated-leader-election-controller", election},
		{"peer-endpoint-reconciler-controller", presence},
		{"local-discovery-cache-sync", afterIf(peers, r.custom.informer.Loaded)},
		{"peer-discovery-cache-sync", afterIf(peers, r.caches.loaded)},
		{"mixed-version-proxy-handler", afterIf(peers, r.caches.loaded)},
	}
}

// objectChecks returns the checks of the objects that the server creates at its start.
func (r *readiness) objectChecks() (out []startCheck) {
	made := r.controllers.bootstrap.Checks()
	if !r.security.authz.usesRBAC { // the server creates roles, and serves without them
		delete(made, "rbac/bootstrap-roles")
	}
	for _, name := range []string{
		"start-cluster-authentication-info-controller",
		"start-kube-apiserver-identity-lease-controller", "start-kube-apiserver-identity-lease-garbage-collector",
		"storage-readiness",
		"start-legacy-token-tracking-controller", "start-service-ip-repair-controllers",
		"rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer",
		"bootstrap-controller", "start-kubernetes-service-cidr-controller",
	} {
		check := health.Check(made[name])
		if name == "storage-readiness" {
			check = afterIf(r.gates.Enabled(features.WatchCacheInitializationPostStartHook), r.caches.loaded)
		}
		out = append(out, startCheck{name, check})
	}
	return out
}

// aggregationChecks returns the checks of APIServices, discovery and OpenAPI.
func (r *readiness) aggregationChecks() []startCheck {
	made := r.controllers.bootstrap.Checks()
	documents := after(r.custom.informer.Loaded)
	return []startCheck{
		{"aggregator-reload-proxy-client-cert", afterIf(r.delegates.proxyClientCert != nil, func() bool { return r.delegates.proxyClientCert.Certificate() != nil })},
		{"start-kube-aggregator-informers", after(r.caches.loaded)},
		{"apiservice-status-local-available-controller", after(r.delegates.extensions.LocalStarted)},
		{"apiservice-status-remote-available-controller", after(r.delegates.extensions.RemoteStarted)},
		{"apiservice-registration-controller", after(r.delegates.extensions.RemoteStarted)},
		{"apiservice-discovery-controller", after(r.delegates.extensions.RemoteStarted)},
		{"built-in-resources-storage-version-updater", made["built-in-resources-storage-version-updater"]},
		{"kube-apiserver-autoregistration", made["kube-apiserver-autoregistration"]},
		{"apiservice-openapi-controller", documents},
		{"apiservice-openapiv3-controller", documents},
	}
}

// registeredCheck returns a check that passes once the APIService of each built-in group version
// was available. It does not keep a server with a full store from deleting objects.
func (r *readiness) registeredCheck() health.Check {
	var complete atomic.Bool
	return func(*http.Request) error {
		if complete.Load() || r.controllers.bootstrap.StoreFull() {
			return nil
		}
		available := map[string]bool{}
		for s := range r.delegates.extensions.Registered() {
			available[s.Name] = aggregation.Available(s)
		}
		var missing []string
		for _, s := range apiServices(r.caches.served) {
			if name := s.Version + "." + s.Group; !available[name] {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			slices.Sort(missing)
			return fmt.Errorf("missing APIService: %v", missing)
		}
		complete.Store(true)
		return nil
	}
}
