package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestDeviceAdminAccessRequiresNamespaceLabel checks that a label of the namespace decides on claims, templates and
// allocations in every version. The device status that drivers report follows the allocation.
func TestDeviceAdminAccessRequiresNamespaceLabel(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		_ = options.Features.Set("DynamicResourceAllocation=true,DRAAdminAccess=true")
		_ = options.RuntimeConfig.Set("resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true")
	})
	const merge = mergePatch
	api.mustSend(201, "POST", "/api/v1/namespaces",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"admins","labels":{"resource.k8s.io/admin-access":"true"}}}`)
	const old, newest = `"adminAccess":true,"deviceClassName":"x"`, `"exactly":{"adminAccess":true,"deviceClassName":"x"}`
	object := func(version, kind, name, request string) string {
		spec := fmt.Sprintf(`{"devices":{"requests":[{"name":"r",%s}]}}`, request)
		if kind == "ResourceClaimTemplate" {
			spec = `{"spec":` + spec + `}`
		}
		return fmt.Sprintf(`{"apiVersion":"resource.k8s.io/%s","kind":%q,"metadata":{"name":%q},"spec":%s}`, version, kind, name, spec)
	}
	path := func(version, namespace, resource string) string {
		return "/apis/resource.k8s.io/" + version + "/namespaces/" + namespace + "/" + resource
	}
	for version, request := range map[string]string{"v1alpha3": old, "v1beta1": old, "v1beta2": newest} {
		for resource, kind := range map[string]string{
			"resourceclaims": "ResourceClaim", "resourceclaimtemplates": "ResourceClaimTemplate",
		} {
			name := strings.ReplaceAll(version, "v", "c")
			response := api.mustSend(422, "POST", path(version, "default", resource), object(version, kind, name, request))
			if got := fmt.Sprint(response.field("details", "causes")); !strings.Contains(got, "field:spec.devices.requests[0].adminAccess") ||
				!strings.Contains(got, "label on the containing namespace") {
				t.Errorf("%s %s: got causes %s, want one of adminAccess that names the label of the namespace", version, resource, got)
			}
			api.mustSend(201, "POST", path(version, "admins", resource), object(version, kind, name, request))
		}
	}

	claim := path("v1beta2", "default", "resourceclaims") + "/c"
	api.mustSend(201, "POST", path("v1beta2", "default", "resourceclaims"),
		object("v1beta2", "ResourceClaim", "c", `"exactly":{"deviceClassName":"x"}`))
	const allocation = `{"metadata":{"labels":{"a":"b"}},"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"d.example.com","pool":"p","device":"one"%s}]}},"devices":[{"driver":"d.example.com","pool":"p","device":"one"}]}}`
	response := api.mustSend(422, "PATCH", claim+"/status", fmt.Sprintf(allocation, `,"adminAccess":true`), "Content-Type", merge)
	got := fmt.Sprint(response.field("details", "causes"))
	if !strings.Contains(got, "field:status.allocation.devices.results[0].adminAccess") {
		t.Errorf("allocation: got causes %s, want one of status.allocation.devices.results[0].adminAccess", got)
	}
	api.mustSend(200, "PATCH", "/api/v1/namespaces/default",
		`{"metadata":{"labels":{"resource.k8s.io/admin-access":"true"}}}`, "Content-Type", merge)
	response = api.mustSend(200, "PATCH", claim+"/status", fmt.Sprintf(allocation, `,"adminAccess":true`), "Content-Type", merge)
	if response.field("metadata", "labels") != nil || response.field("status", "devices") == nil {
		t.Errorf("patched status: got %s, want devices and no labels", response.body)
	}
	api.mustSend(200, "PATCH", "/api/v1/namespaces/default", `{"metadata":{"labels":null}}`, "Content-Type", merge)
	api.mustSend(200, "PATCH", claim+"/status", `{"status":{"reservedFor":[{"resource":"pods","name":"p","uid":"u"}]}}`,
		"Content-Type", merge)
	response = api.mustSend(200, "PATCH", claim+"/status", `{"status":{"allocation":null,"reservedFor":null}}`, "Content-Type", merge)
	if response.field("status", "devices") != nil {
		t.Errorf("claim without allocation: got %s, want no devices", response.body)
	}
}
