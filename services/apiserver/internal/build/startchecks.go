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

// startChecks adds the checks of the parts that start with the server.
func (p *parts) startChecks() {
	for _, c := range slices.Concat(p.cacheChecks(), p.controllerChecks(), p.objectChecks(), p.aggregationChecks()) {
		if c.check != nil {
			p.health.Add("poststarthook/"+c.name, c.check)
		}
		if c.name == "kube-apiserver-autoregistration" {
			p.health.Add("autoregister-completion", p.registeredCheck())
		}
	}
}

// cacheChecks returns the checks of the watch cache, its readers, and the limits on requests.
func (p *parts) cacheChecks() []startCheck {
	return []startCheck{
		{"start-apiserver-admission-initializer", after(func() bool { return p.loaded() && p.definitionInformer.Loaded() })},
		{"start-encryption-provider-config-automatic-reload", afterIf(p.options.Encryption.Reload, p.encryptionConfig.Following)},
		{"generic-apiserver-start-informers", after(p.loaded)},
		{"priority-and-fairness-config-consumer", afterIf(p.flow != nil, p.flow.Configured)},
		{"priority-and-fairness-filter", afterIf(p.flow != nil, p.flow.Running)},
		{"max-in-flight-filter", afterIf(p.flow == nil, func() bool { return p.handler != nil })},
		{"storage-object-count-tracker-hook", after(p.loaded)},
		{"start-apiextensions-informers", after(p.loaded)},
		{"start-apiextensions-controllers", after(p.definitionController.Started)},
		{"crd-informer-synced", after(p.definitionInformer.Loaded)},
	}
}

// controllerChecks returns the checks of controllers behind feature gates.
func (p *parts) controllerChecks() []startCheck {
	var election, presence health.Check
	if p.leaderElection != nil {
		election = p.leaderElection.Check
	}
	if p.presence != nil {
		presence = p.presence.Check
	}
	namespaces, peers := p.bootstrap.Checks()["start-system-namespaces-controller"], p.peers != nil
	return []startCheck{
		{"start-system-namespaces-controller", namespaces},
		{"start-kube-apiserver-coordinated-leader-election-controller", election},
		{"peer-endpoint-reconciler-controller", presence},
		{"local-discovery-cache-sync", afterIf(peers, p.definitionInformer.Loaded)},
		{"peer-discovery-cache-sync", afterIf(peers, p.loaded)},
		{"mixed-version-proxy-handler", afterIf(peers, p.loaded)},
	}
}

// objectChecks returns the checks of the objects that the server creates at its start.
func (p *parts) objectChecks() (out []startCheck) {
	made := p.bootstrap.Checks()
	if !p.authz.usesRBAC { // the server creates roles, and serves without them
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
			check = afterIf(p.options.Features.Enabled(features.WatchCacheInitializationPostStartHook), p.loaded)
		}
		out = append(out, startCheck{name, check})
	}
	return out
}

// aggregationChecks returns the checks of APIServices, discovery and OpenAPI.
func (p *parts) aggregationChecks() []startCheck {
	made := p.bootstrap.Checks()
	documents := after(func() bool { return p.documents.attached() && p.definitionInformer.Loaded() })
	return []startCheck{
		{"aggregator-reload-proxy-client-cert", afterIf(p.proxyClientCert != nil, func() bool { return p.proxyClientCert.Certificate() != nil })},
		{"start-kube-aggregator-informers", after(p.loaded)},
		{"apiservice-status-local-available-controller", after(p.extensions.LocalStarted)},
		{"apiservice-status-remote-available-controller", after(p.extensions.RemoteStarted)},
		{"apiservice-registration-controller", after(p.extensions.RemoteStarted)},
		{"apiservice-discovery-controller", after(func() bool { return p.extensions.RemoteStarted() && p.documents.attached() })},
		{"built-in-resources-storage-version-updater", made["built-in-resources-storage-version-updater"]},
		{"kube-apiserver-autoregistration", made["kube-apiserver-autoregistration"]},
		{"apiservice-openapi-controller", documents},
		{"apiservice-openapiv3-controller", documents},
	}
}

// registeredCheck returns a check that passes once the APIService of each built-in group version
// was available. It does not keep a server with a full store from deleting objects.
func (p *parts) registeredCheck() health.Check {
	var complete atomic.Bool
	return func(*http.Request) error {
		if complete.Load() || p.bootstrap.StoreFull() {
			return nil
		}
		available := map[string]bool{}
		for s := range p.extensions.Registered() {
			available[s.Name] = aggregation.Available(s)
		}
		var missing []string
		for _, s := range apiServices(p.served) {
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
