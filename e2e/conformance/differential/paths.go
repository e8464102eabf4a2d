package main

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

// nonResourcePaths returns a scenario about paths that are no resources.
func nonResourcePaths(r *rand.Rand) *comparison.Scenario {
	c := &comparison.Scenario{Name: "paths", Steps: comparison.NamespaceSteps()}
	for range stepsPerKind {
		s := comparison.Step{Label: "path", Method: faults.Pick(r, "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "PATCH"),
			Path: faults.Pick(r, "/", "/api", "/api/", "/api/v1", "/api/v2", "/apis", "/apis/", "/apis/apps", "/apis/apps/", "/apis/apps/v1", "/apis/apps/v9", "/apis/bogus", "/apis/bogus/v1", "/version", "/version/", "/healthz", "/livez", "/readyz",
				"/healthz/ping", "/livez/bogus", "/readyz?exclude=bogus", "/livez?exclude=ping", "/healthz/", "/openapi", "/openapi/v2/", "/openapi/v3", "/openapi/v3/", "/openapi/v3/bogus", "/openapi/v3/api/v1x", "/.well-known/openid-configuration", "/.well-known/", "/openid/v1/jwks", "/bogus", "/bogus/x",
				"/api/v1/bogus", "/api/v1/namespaces/{ns}/bogus", "/api/v1/namespaces/{ns}/bogus/x", "/api/v1/namespaces/{ns}/status", "/api/v1/namespaces/{ns}/finalize", "/api/v1/namespaces//pods", "/api/v1//pods", "//api/v1/pods", "/api/v1/namespaces/{ns}/pods/.", "/api/v1/namespaces/{ns}/pods/..", "/api/v1/namespaces/{ns}/pods/%2e%2e",
				"/api/v1/watch", "/api/v1/watch/namespaces/{ns}/pods?timeoutSeconds=1", "/api/v1/watch/namespaces/{ns}?timeoutSeconds=1", "/api/v1/proxy/nodes/x", "/api/v1/nodes/x/proxy", "/api/v1/namespaces/{ns}/services/x/proxy/", "/api/v1/namespaces/{ns}/pods/x/log", "/logs", "/logs/", "/debug/pprof", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/x", "/debug/flags/v", "/statusz", "/flagz", "/metrics/bogus",
				"/apis/apps/v1/namespaces/{ns}/deployments/x/bogus", "/apis/apps/v1/deployments/x", "/apis/apps/v1/nodes", "/api/v1/namespaces/{ns}/nodes", "/api/v1/nodes/{ns}-x", "/swagger.json", "/swaggerapi", "/ui", "/index.html", "/favicon.ico", "/api/v1/componentstatuses/scheduler", "/apis/apiregistration.k8s.io/v1/bogus", "/apis/apiextensions.k8s.io/v1/bogus", "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps/status",
				"/apis/"+customGroup+"/v1/bogus", "/apis/"+customGroup+"/v9/features", "/apis/"+customGroup, "/apis/"+customGroup+"/v1")}
		if r.IntN(3) == 0 {
			s = s.With("Accept", faults.Pick(r, "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", "text/html", "*/*", "", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList", "application/json;charset=utf-8"))
		}
		switch r.IntN(8) {
		case 0:
			s = s.With("Impersonate-User", faults.Pick(r, "alice", "system:anonymous"))
		case 1:
			s = s.With("Authorization", faults.Pick(r, "", "Bearer wrong", "Basic eDp5", "Bearer", "bogus", "Bearer  "+comparison.AdminToken))
		case 2:
			s = s.With(faults.Pick(r, "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-X", "Impersonate-User"), faults.Pick(r, "x", "system:masters"))
		case 3:
			s = s.With(faults.Pick(r, "Origin", "Accept-Encoding", "If-None-Match", "X-Forwarded-For", "Accept-Language", "Connection"), faults.Pick(r, "http://x", "gzip", "*", "1.2.3.4", "Upgrade"))
		case 4:
			s = s.With("Range", "bytes=0-1")
		}
		if slices.Contains([]string{"POST", "PUT", "PATCH"}, s.Method) {
			s = s.With("Content-Type", faults.Pick(r, "application/json", mergePatch, "text/plain"))
			s.Text = faults.Pick(r, "", "{}", "x")
		}
		if s.Method == "DELETE" {
			s = s.Query("dryRun=All")
		}
		c.Steps = append(c.Steps, s)
	}
	return c
}

// mutatedGolden returns a golden scenario with random changes of its requests.
func mutatedGolden(r *rand.Rand, g goldenCase) *comparison.Scenario {
	c := g.scenario()
	for i := len(comparison.NamespaceSteps()); i < len(c.Steps); i++ {
		s := c.Steps[i]
		if r.IntN(3) > 0 || s.Until != nil {
			continue
		}
		s.Header = maps.Clone(s.Header)
		switch choice := r.IntN(5); {
		case choice < 3 && s.Object != nil && comparison.Lookup(s.Object, "metadata.generateName") == nil:
			place := faults.PickSite(r, s.Object, inferred(s.Object))
			if len(place.Path) == 0 {
				continue
			}
			v, what := faults.Fault(r, place)
			s.Object, s.Label = faults.Set(s.Object, place.Path, v), s.Label+", "+what
		case choice == 3:
			s = s.With("Accept", faults.Pick(r, "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "text/plain"))
		default:
			s = s.Query(faults.Pick(r, "dryRun=All", "fieldValidation=Strict", "limit=1", "resourceVersion=0", "fieldManager=m", "pretty=true", "labelSelector=a"))
		}
		c.Steps[i] = s
	}
	return c
}

// inferred returns a schema that describes the types of a value.
func inferred(v any) map[string]any {
	switch t := v.(type) {
	case map[string]any:
		properties := map[string]any{}
		for k, x := range t {
			properties[k] = inferred(x)
		}
		return map[string]any{"type": "object", "properties": properties}
	case []any:
		if len(t) > 0 {
			return map[string]any{"type": "array", "items": inferred(t[0])}
		}
		return map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	case bool:
		return map[string]any{"type": "boolean"}
	case json.Number:
		if strings.Contains(t.String(), ".") {
			return map[string]any{"type": "number"}
		}
		return map[string]any{"type": "integer"}
	}
	return map[string]any{"type": "string"}
}
