package build

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestRuntimeConfigSelectsVersions checks which versions --runtime-config enables and disables, and that stored
// objects survive a change.
func TestRuntimeConfigSelectsVersions(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	const (
		slices = "/apis/resource.k8s.io/v1beta1/resourceslices"
		betaIP = "/apis/networking.k8s.io/v1beta1/ipaddresses"
	)

	// 1. The first server enables beta versions and disables some stable ones.
	t.Run("on", func(t *testing.T) {
		api := startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.DataDir = dir
			_ = options.RuntimeConfig.Set("api/beta=true,autoscaling/v1=false,batch/v1/cronjobs=false,node.k8s.io/v1=false")
		})
		for path, code := range map[string]int{
			slices:                  200,
			betaIP:                  200,
			"/apis/resource.k8s.io": 200,
			"/apis/autoscaling/v1":  404,
			"/apis/autoscaling/v2":  200,
			"/apis/autoscaling/v1/horizontalpodautoscalers":       404,
			"/apis/batch/v1/cronjobs":                             404,
			"/apis/batch/v1/jobs":                                 200,
			"/apis/node.k8s.io":                                   404,
			"/apis/node.k8s.io/v1/runtimeclasses":                 404,
			"/apis/batch/v1/namespaces/default/cronjobs/x/status": 404,
		} {
			if response := api.get(path); response.code != code {
				t.Errorf("%s: got %d, want %d", path, response.code, code)
			}
		}

		// Objects of an enabled version are the same objects in other versions.
		if ip := api.mustSend(200, "GET", betaIP+"/10.0.0.1", ""); ip.field("apiVersion") != "networking.k8s.io/v1beta1" {
			t.Errorf("got apiVersion %v, want networking.k8s.io/v1beta1", ip.field("apiVersion"))
		}
		api.mustSend(201, "POST", "/apis/networking.k8s.io/v1beta1/servicecidrs",
			`{"apiVersion":"networking.k8s.io/v1beta1","kind":"ServiceCIDR","metadata":{"name":"more"},"spec":{"cidrs":["10.9.0.0/24"]}}`)
		if c := api.mustSend(200, "GET", "/apis/networking.k8s.io/v1/servicecidrs/more", ""); c.field("apiVersion") != "networking.k8s.io/v1" {
			t.Errorf("got apiVersion %v, want networking.k8s.io/v1", c.field("apiVersion"))
		}
		api.mustSend(201, "POST", slices,
			`{"apiVersion":"resource.k8s.io/v1beta1","kind":"ResourceSlice","metadata":{"name":"s"},"spec":{"driver":"d.example.com","nodeName":"n","pool":{"name":"p","resourceSliceCount":1}}}`)
		if got := api.get(slices + "?fieldSelector=spec.nodeName%3Dn").field("items"); len(got.([]any)) != 1 {
			t.Errorf("selected by node: got %v, want one slice", got)
		}
		api.mustSend(201, "POST", "/apis/resource.k8s.io/v1beta2/namespaces/default/resourceclaims",
			`{"apiVersion":"resource.k8s.io/v1beta2","kind":"ResourceClaim","metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"x"}}]}}}`)
		claim := api.mustSend(200, "GET", "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims/c", "")
		got := fmt.Sprint(claim.field("spec", "devices", "requests"))
		if got != "[map[allocationMode:ExactCount count:1 deviceClassName:x name:r]]" {
			t.Errorf("older version: got requests %s, want one with the device class x", got)
		}
		// Kubernetes removed this version in 1.33, so it cannot be enabled.
		api.mustSend(404, "POST", "/apis/authentication.k8s.io/v1beta1/selfsubjectreviews",
			`{"apiVersion":"authentication.k8s.io/v1beta1","kind":"SelfSubjectReview"}`)

		// Discovery, OpenAPI and APIServices list the enabled versions only.
		groups := string(api.get("/apis").body)
		if !strings.Contains(groups, "resource.k8s.io") {
			t.Errorf("got groups %s, want resource.k8s.io among them", groups)
		}
		for _, disabled := range []string{"node.k8s.io", "autoscaling/v1"} {
			if strings.Contains(groups, disabled) {
				t.Errorf("got groups %s, want them without %s", groups, disabled)
			}
		}
		if docs := string(api.get("/openapi/v3").body); !strings.Contains(docs, "apis/resource.k8s.io/v1beta1") ||
			strings.Contains(docs, "apis/autoscaling/v1\"") {
			t.Errorf("got OpenAPI documents %s, want resource.k8s.io/v1beta1 and not autoscaling/v1", docs)
		}
		api.mustSend(200, "GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.resource.k8s.io", "")
	})

	// 2. The second server has the same data and the default versions.
	api := startServer(t, func(options *config.Options) { options.Etcd.Backend, options.Etcd.DataDir = config.BackendEtcd, dir })
	for path, code := range map[string]int{
		slices: 404, betaIP: 404, "/apis/resource.k8s.io": 404, "/apis/autoscaling/v1": 200,
		"/apis/batch/v1/cronjobs": 200,
	} {
		if response := api.get(path); response.code != code {
			t.Errorf("%s: got %d, want %d", path, response.code, code)
		}
	}
	api.mustSend(404, "GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.resource.k8s.io", "")
	api.mustSend(200, "GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.autoscaling", "")
	if v := fmt.Sprint(api.get("/apis/networking.k8s.io").field("versions")); strings.Contains(v, "v1beta1") {
		t.Errorf("got versions %s, want them without v1beta1", v)
	}
}

// TestObjectsAreServedInAlphaVersions starts a server with every version, and reads objects in versions other than
// the stored one.
func TestObjectsAreServedInAlphaVersions(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		_ = options.RuntimeConfig.Set("api/alpha=true,api/beta=true")
		_ = options.Features.Set("ClusterTrustBundle=true,StorageVersionMigrator=true,VolumeAttributesClass=true")
	})
	const group = "/apis/resource.k8s.io/"
	api.mustSend(201, "POST", group+"v1alpha3/resourceslices",
		`{"apiVersion":"resource.k8s.io/v1alpha3","kind":"ResourceSlice","metadata":{"name":"s"},"spec":{"driver":"d.example.com","nodeName":"n","pool":{"name":"p","resourceSliceCount":1},"devices":[{"name":"a","basic":{"capacity":{"memory":"1Gi"}}}]}}`)
	for version, want := range map[string]string{
		"v1alpha3": "[map[basic:map[capacity:map[memory:1Gi]] name:a]]",
		"v1beta1":  "[map[basic:map[capacity:map[memory:map[value:1Gi]]] name:a]]",
		"v1beta2":  "[map[capacity:map[memory:map[value:1Gi]] name:a]]",
	} {
		if got := fmt.Sprint(api.mustSend(200, "GET", group+version+"/resourceslices/s", "").field("spec", "devices")); got != want {
			t.Errorf("devices in %s are %s, want %s", version, got, want)
		}
	}
	api.mustSend(201, "POST", "/apis/storage.k8s.io/v1alpha1/volumeattributesclasses",
		`{"apiVersion":"storage.k8s.io/v1alpha1","kind":"VolumeAttributesClass","metadata":{"name":"fast"},"driverName":"d","parameters":{"a":"b"}}`)
	c := api.mustSend(200, "GET", "/apis/storage.k8s.io/v1beta1/volumeattributesclasses/fast", "")
	if c.field("apiVersion") != "storage.k8s.io/v1beta1" {
		t.Errorf("got apiVersion %v, want storage.k8s.io/v1beta1", c.field("apiVersion"))
	}
	rule := api.mustSend(201, "POST", group+"v1alpha3/devicetaintrules",
		`{"apiVersion":"resource.k8s.io/v1alpha3","kind":"DeviceTaintRule","metadata":{"name":"r"},"spec":{"taint":{"key":"a","effect":"NoExecute"}}}`)
	if rule.field("spec", "taint", "timeAdded") == nil {
		t.Errorf("got %s, want spec.taint.timeAdded", rule.body)
	}
	const migrations = "/apis/storagemigration.k8s.io/v1alpha1/storageversionmigrations"
	api.mustSend(201, "POST", migrations,
		`{"apiVersion":"storagemigration.k8s.io/v1alpha1","kind":"StorageVersionMigration","metadata":{"name":"m"},"spec":{"resource":{"version":"v1","resource":"secrets"}}}`)
	api.mustSend(200, "PATCH", migrations+"/m/status",
		`{"status":{"resourceVersion":"5"}}`, "Content-Type", "application/merge-patch+json")
	api.mustSend(422, "PATCH", migrations+"/m/status",
		`{"status":{"resourceVersion":"6"}}`, "Content-Type", "application/merge-patch+json")
	api.mustSend(201, "POST", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions",
		`{"apiVersion":"internal.apiserver.k8s.io/v1alpha1","kind":"StorageVersion","metadata":{"name":"apps.deployments"},"spec":{}}`)
	api.mustSend(404, "GET", "/apis/networking.k8s.io/v1alpha1", "")
	groups := fmt.Sprint(api.get("/apis/certificates.k8s.io").field("versions"))
	if !strings.Contains(groups, "v1alpha1") {
		t.Errorf("got versions %s, want v1alpha1 among them", groups)
	}
}

// TestServerRunsWithoutOptionalGroups starts a server that serves only the core group, but uses others
// itself.
func TestServerRunsWithoutOptionalGroups(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) { _ = options.RuntimeConfig.Set("api/all=false,api/v1=true") })
	api.mustSend(404, "GET", addressesPath, "")
	if s := api.mustSend(201, "POST", servicesPath, service("s", onePort)); s.field("spec", "clusterIP") == nil {
		t.Errorf("got service %s, want one with an address", s.body)
	}
	if got := api.get("/apis").field("groups"); len(got.([]any)) != 0 {
		t.Errorf("got groups %v, want none", got)
	}
}
