package build

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listedVersions returns the versions that /apis/NAME lists.
func (api *testServer) listedVersions(name string) string {
	response := api.get("/apis/" + name)
	var g metav1.APIGroup
	if response.code != 200 || json.Unmarshal(response.body, &g) != nil {
		return ""
	}
	var versions []string
	for _, v := range g.Versions {
		versions = append(versions, v.Version)
	}
	return strings.Join(versions, " ")
}

// TestAPIServicesWithoutServerAreListed checks that /apis lists the versions of APIServices that
// refer to no service, while aggregated discovery and the paths of the versions do not know them.
func TestAPIServicesWithoutServerAreListed(t *testing.T) {
	api := startServer(t, nil)
	aggregated := func() string {
		return string(api.mustSend(200, "GET", "/apis", "", "Accept",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").body)
	}
	register := func(version, group, service string) {
		api.mustSend(201, "POST", apiServicesPath,
			`{"metadata":{"name":"`+version+"."+group+`"},"spec":{"group":"`+group+`","version":"`+version+
				`","groupPriorityMinimum":1000,"versionPriority":100`+service+`}}`)
	}
	register("v1", "local.test", "")
	api.waitUntil("listed", func() bool { return api.listedVersions("local.test") == "v1" })
	if got := string(api.get("/apis").body); !strings.Contains(got, `"local.test"`) {
		t.Errorf("/apis: got %s, want the group local.test", got)
	}
	if got := aggregated(); strings.Contains(got, "local.test") {
		t.Errorf("aggregated discovery: got %s, want no group local.test", got)
	}
	for _, path := range []string{"/apis/local.test/v1", "/apis/local.test/v1/things", "/apis/local.test/v2"} {
		if response := api.mustSend(404, "GET", path, ""); string(response.body) != "404 page not found\n" {
			t.Errorf("%s: got %s, want %q", path, response.body, "404 page not found\n")
		}
	}

	const service = `"service":{"namespace":"default","name":"none"}`
	api.mustSend(200, "PATCH", apiServicesPath+"/v1.local.test",
		`{"spec":{"insecureSkipTLSVerify":true,`+service+`}}`, "Content-Type", mergePatch)
	api.waitUntil("proxied", func() bool { return api.get("/apis/local.test/v1").code == 503 })
	if got := api.listedVersions("local.test"); got != "v1" {
		t.Errorf("with an extension server: got listed versions %q, want v1", got)
	}
	if got := aggregated(); !strings.Contains(got, "local.test") {
		t.Errorf("aggregated discovery with an extension server: got %s, want the group local.test", got)
	}
	api.mustSend(200, "PATCH", apiServicesPath+"/v1.local.test",
		`{"spec":{"insecureSkipTLSVerify":null,"service":null}}`, "Content-Type", mergePatch)
	api.waitUntil("no longer proxied", func() bool { return api.get("/apis/local.test/v1").code == 404 })
	if got := api.listedVersions("local.test"); got != "v1" {
		t.Errorf("/apis/local.test: got versions %q, want v1", got)
	}
	if got := aggregated(); strings.Contains(got, "local.test") {
		t.Errorf("aggregated discovery without extension server: got %s, want no group local.test", got)
	}

	api.mustSend(201, "POST", definitionsPath, versioned("as", "v1"))
	register("v9", "ex.test", "")
	api.waitUntil("listed with the version of a definition", func() bool { return api.listedVersions("ex.test") == "v9 v1" })
	register("v7", "apps", "")
	api.waitUntil("listed with a built-in version", func() bool { return api.listedVersions("apps") == "v7 v1" })
	if response := api.mustSend(404, "GET", "/apis/apps/v7", ""); response.field("message") != "the server could not find the requested resource" {
		t.Errorf("/apis/apps/v7: got %s, want the message %q", response.body, "the server could not find the requested resource")
	}
	api.mustSend(200, "DELETE", apiServicesPath+"/v1.local.test", "")
	api.waitUntil("gone", func() bool { return api.get("/apis/local.test").code == 404 })
}
