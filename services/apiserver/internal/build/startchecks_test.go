package build

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage"
)

// startedByDefault lists the checks of /livez of kube-apiserver 1.33.13 with
// --authorization-mode=RBAC, in order.
const startedByDefault = `ping log etcd
poststarthook/start-apiserver-admission-initializer poststarthook/generic-apiserver-start-informers
poststarthook/priority-and-fairness-config-consumer poststarthook/priority-and-fairness-filter
poststarthook/storage-object-count-tracker-hook
poststarthook/start-apiextensions-informers poststarthook/start-apiextensions-controllers poststarthook/crd-informer-synced
poststarthook/start-system-namespaces-controller poststarthook/start-cluster-authentication-info-controller
poststarthook/start-kube-apiserver-identity-lease-controller poststarthook/start-kube-apiserver-identity-lease-garbage-collector
poststarthook/start-legacy-token-tracking-controller poststarthook/start-service-ip-repair-controllers
poststarthook/rbac/bootstrap-roles poststarthook/scheduling/bootstrap-system-priority-classes
poststarthook/priority-and-fairness-config-producer poststarthook/bootstrap-controller
poststarthook/start-kubernetes-service-cidr-controller poststarthook/start-kube-aggregator-informers
poststarthook/apiservice-status-local-available-controller poststarthook/apiservice-status-remote-available-controller
poststarthook/apiservice-registration-controller poststarthook/apiservice-discovery-controller
poststarthook/kube-apiserver-autoregistration autoregister-completion
poststarthook/apiservice-openapi-controller poststarthook/apiservice-openapiv3-controller`

// passingChecks returns the names of the checks that an endpoint reports as passed.
func (api *testServer) passingChecks(endpoint string) []string {
	var names []string
	for _, line := range strings.Split(string(api.mustSend(http.StatusOK, "GET", endpoint+"?verbose", "").body), "\n") {
		if name, ok := strings.CutPrefix(line, "[+]"); ok {
			names = append(names, strings.TrimSuffix(name, " ok"))
		}
	}
	return names
}

// TestHealthChecksHaveTheNamesOfKubernetes checks the names of the health checks for several
// configurations.
func TestHealthChecksHaveTheNamesOfKubernetes(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*config.Options)
		edits  *strings.Replacer // changes to startedByDefault
	}{
		{name: "RBAC", change: withRBAC, edits: strings.NewReplacer()},
		{name: "without RBAC", change: func(*config.Options) {}, edits: strings.NewReplacer("poststarthook/rbac/bootstrap-roles ", "")},
		{
			name: "without flow control",
			change: func(options *config.Options) {
				withRBAC(options)
				options.Requests.PriorityAndFairness = false
			},
			edits: strings.NewReplacer(
				"poststarthook/priority-and-fairness-config-consumer", "poststarthook/max-in-flight-filter",
				"poststarthook/priority-and-fairness-filter", "",
			),
		},
		{
			name: "changed feature gates",
			change: func(options *config.Options) {
				withRBAC(options)
				err := options.Features.Set("APIServerIdentity=false,MultiCIDRServiceAllocator=false,DisableAllocatorDualWrite=false,WatchCacheInitializationPostStartHook=true")
				if err != nil {
					t.Fatal(err)
				}
			},
			edits: strings.NewReplacer(
				"poststarthook/start-kube-apiserver-identity-lease-controller", "poststarthook/storage-readiness",
				"poststarthook/start-kube-apiserver-identity-lease-garbage-collector", "",
				"poststarthook/start-kubernetes-service-cidr-controller", "",
			),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			api := startServer(t, test.change)
			want := strings.Fields(test.edits.Replace(startedByDefault))
			for _, endpoint := range []string{"/livez", "/healthz"} {
				if got := api.passingChecks(endpoint); !slices.Equal(got, want) {
					t.Errorf("%s: got %q, want %q", endpoint, got, want)
				}
			}
			// /readyz has three more checks after ping, log and etcd, and shutdown at the end.
			ready := slices.Concat(want[:3], []string{"etcd-readiness", "informer-sync", "fan-out"}, want[3:], []string{"shutdown"})
			if got := api.passingChecks("/readyz"); !slices.Equal(got, ready) {
				t.Errorf("/readyz: got %q, want %q", got, ready)
			}
			for _, name := range want {
				api.mustSend(http.StatusOK, "GET", "/livez/"+name, "")
			}
		})
	}
}

// unloaded is a source that delivers nothing until open is closed.
type unloaded struct {
	watchcache.Source
	open chan struct{}
}

// Load implements watchcache.Source.
func (u *unloaded) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	select {
	case <-u.open:
		return u.Source.Load(ctx, page)
	case <-ctx.Done():
		return storage.Position{}, ctx.Err()
	}
}

// TestHealthChecksFailUntilComponentsStart checks that the checks of components fail while the
// watch cache is not loaded.
func TestHealthChecksFailUntilComponentsStart(t *testing.T) {
	source := &unloaded{open: make(chan struct{})}
	api := startUnreadyServer(t, func(options *config.Options) {
		withRBAC(options)
		options.WrapSource = func(s watchcache.Source) watchcache.Source {
			source.Source = s
			return source
		}
	})
	notFinished := "internal server error: not finished\n"
	// ping, log and etcd need no loaded objects. The checks after them do.
	waiting := strings.Fields(startedByDefault)[3:]
	for _, name := range waiting {
		want := notFinished
		switch name {
		case "poststarthook/priority-and-fairness-filter": // needs no objects
			api.waitUntil(name, func() bool { return api.get("/livez/"+name).code == http.StatusOK })
			continue
		case "autoregister-completion":
			want = "internal server error: missing APIService: [v1. v1.admissionregistration.k8s.io "
		}
		if got := api.get("/livez/" + name); got.code != http.StatusInternalServerError || !strings.HasPrefix(string(got.body), want) {
			t.Errorf("%s: got status %d: %s, want status %d and a text that begins with %q",
				name, got.code, got.body, http.StatusInternalServerError, want)
		}
	}
	all := "?verbose&exclude=" + strings.Join(waiting, "&exclude=")
	if response := api.mustSend(http.StatusOK, "GET", "/livez"+all, ""); !strings.Contains(string(response.body),
		"[+]autoregister-completion excluded: ok\n") {
		t.Errorf("/livez without the waiting checks: got %s, want autoregister-completion excluded", response.body)
	}
	close(source.open)
	api.waitUntil("live", func() bool { return api.get("/livez").code == http.StatusOK })
}
