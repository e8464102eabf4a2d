package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// extension is an extension server.
type extension struct {
	*httptest.Server
	mu       sync.Mutex
	broken   bool
	requests []*http.Request
}

func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	broken := e.broken
	if !strings.HasPrefix(r.Header.Get("X-Remote-User"), "system:kube-aggregator") {
		e.requests = append(e.requests, r)
	}
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case broken:
		w.WriteHeader(http.StatusInternalServerError)
	case r.URL.Path == "/apis/ext.test/v1":
		_, _ = io.WriteString(w,
			`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"ext.test/v1","resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list"]}]}`)
	case strings.HasSuffix(r.URL.Path, "/redirect"):
		http.Redirect(w, r, "https://example.com/", http.StatusFound)
	case strings.HasPrefix(r.URL.Path, "/apis/ext.test/v1/"):
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w,
			`{"apiVersion":"ext.test/v1","kind":"Thing","metadata":{"name":"t"},"asked":%q,"body":%q}`,
			r.Method+" "+r.URL.RequestURI(), body)
	default:
		http.NotFound(w, r)
	}
}

// setBroken makes the server fail all requests, or ends this.
func (e *extension) setBroken(broken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = broken
}

// lastRequest returns the last request that is not a check of the aggregator, or nil.
func (e *extension) lastRequest() *http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.requests) == 0 {
		return nil
	}
	return e.requests[len(e.requests)-1]
}

const apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"

// startExtension starts an extension server and registers it without verification of its certificate.
func startExtension(t *testing.T, api *testServer) *extension {
	t.Helper()
	return registerExtension(t, api, func(*extension) string { return `"insecureSkipTLSVerify":true` })
}

// startVerifiedExtension is like startExtension, but the certificate is verified.
func startVerifiedExtension(t *testing.T, api *testServer) *extension {
	t.Helper()
	return registerExtension(t, api, func(e *extension) string {
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
		return fmt.Sprintf(`"caBundle":%q`, base64.StdEncoding.EncodeToString(ca))
	})
}

// registerExtension starts an extension server and registers it. verification returns the field of
// the APIService that determines how its certificate is verified.
func registerExtension(t *testing.T, api *testServer, verification func(*extension) string) *extension {
	t.Helper()
	server := &extension{}
	server.Server = httptest.NewUnstartedServer(server)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	api.mustSend(201, "POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"ext"},"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	api.mustSend(201, "POST", apiServicesPath,
		`{"metadata":{"name":"v1.ext.test"},"spec":{"group":"ext.test","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,`+
			verification(server)+`,"service":{"namespace":"default","name":"ext","port":`+port+`}}}`)
	return server
}

// availableCondition returns the condition Available of the extension's APIService.
func (api *testServer) availableCondition() string {
	var service struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	_ = json.Unmarshal(api.get(apiServicesPath+"/v1.ext.test").body, &service)
	for _, condition := range service.Status.Conditions {
		if condition.Type == "Available" {
			return condition.Status + " " + condition.Reason + " " + condition.Message
		}
	}
	return ""
}

// TestRequestsAreProxiedToExtensionServer checks that requests and discovery of a registered extension
// server are served through this server until it is unregistered.
func TestRequestsAreProxiedToExtensionServer(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	if response := api.get("/apis/ext.test/v1"); response.code != 404 {
		t.Errorf("before the registration: got status %d: %s, want 404", response.code, response.body)
	}

	// 1. Requests reach the server with the user that was impersonated, without credentials, and
	// with the audit ID of the response.
	extension := startExtension(t, api)
	api.waitUntil("available", func() bool { return api.availableCondition() == "True Passed all checks passed" })

	for _, test := range []struct{ method, path, body, wantRequest string }{
		{
			method:      "GET",
			path:        "/apis/ext.test/v1/namespaces/n/things/t",
			wantRequest: "GET /apis/ext.test/v1/namespaces/n/things/t",
		},
		{
			method:      "GET",
			path:        "/apis/ext.test/v1/namespaces/n/things?limit=5&x=%2F",
			wantRequest: "GET /apis/ext.test/v1/namespaces/n/things?limit=5&x=%2F",
		},
		{
			method:      "POST",
			path:        "/apis/ext.test/v1/namespaces/n/things?dryRun=All",
			body:        `{"a":1}`,
			wantRequest: "POST /apis/ext.test/v1/namespaces/n/things?dryRun=All",
		},
		{method: "GET", path: "/apis/ext.test/v1/namespaces//things", wantRequest: "GET /apis/ext.test/v1/namespaces//things"},
		{
			method:      "DELETE",
			path:        "/apis/ext.test/v1/namespaces/n/things/t",
			wantRequest: "DELETE /apis/ext.test/v1/namespaces/n/things/t",
		},
	} {
		response := api.mustSend(200, test.method, test.path, test.body, "X-Remote-User", "root", "X-Remote-Extra-A", "b",
			"Impersonate-User", "eve", "Impersonate-Group", "system:masters")
		if response.field("asked") != test.wantRequest || response.field("body") != test.body {
			t.Errorf("%s %s: got %s, want %v and %v", test.method, test.path, response.body, test.wantRequest, test.body)
		}
		received := extension.lastRequest().Header
		if received.Get("X-Remote-User") != "eve" || received.Get("X-Remote-Extra-A") != "" ||
			received.Get("Impersonate-User") != "" || received.Get("Authorization") != "" {
			t.Errorf("%s: extension server received headers %v, want user eve and no credentials of the client", test.path, received)
		}
		if id := received.Get("Audit-Id"); id == "" || response.header.Get("Audit-Id") != id || len(response.header.Values("Audit-Id")) != 1 {
			t.Errorf("extension server received Audit-Id %q, client %q, want the same one", id, response.header.Values("Audit-Id"))
		}
	}

	// 2. Ambiguous paths and redirects are rejected.
	before := extension.lastRequest()
	for _, path := range []string{
		"/apis/ext.test/v1/namespaces/n/%2e%2e/kube-system/things",
		"/apis/ext.test/v1/namespaces/n%2F..%2Fm/things", "/apis/ext.test/v1/%2e/things",
		"/apis/ext.test/v1//things",
	} {
		if response := api.get(path); response.code != 404 || extension.lastRequest() != before {
			t.Errorf("%s: got status %d: %s, want status 404 without a request to the server after %v", path, response.code, response.body, before)
		}
	}
	if response := api.get("/apis/ext.test/v1/namespaces/n/things/redirect"); response.code != 502 {
		t.Errorf("redirect: got status %d: %s, want 502", response.code, response.body)
	}

	// 3. Discovery lists the resources of the server.
	api.waitUntil("discovery", func() bool {
		response := api.get("/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		return strings.Contains(string(response.body),
			`{"metadata":{"name":"ext.test","creationTimestamp":null},"versions":[{"version":"v1","resources":[{"resource":"things"`) &&
			strings.Contains(string(response.body), `"freshness":"Current"`)
	})
	if response := api.mustSend(200, "GET", "/apis/ext.test", ""); response.field("preferredVersion", "groupVersion") != "ext.test/v1" {
		t.Errorf("/apis/ext.test: got %s, want the preferred version ext.test/v1", response.body)
	}
	if response := api.mustSend(200, "GET", "/apis/ext.test/v1", ""); !strings.Contains(string(response.body), "things") {
		t.Errorf("/apis/ext.test/v1: got %s, want the resource things", response.body)
	}

	// 4. While the server fails its checks, requests get 503.
	extension.setBroken(true)
	api.mustSend(200, "PATCH", apiServicesPath+"/v1.ext.test",
		`{"spec":{"versionPriority":16}}`, "Content-Type", "application/merge-patch+json")
	api.waitUntil("unavailable", func() bool {
		return strings.HasPrefix(api.availableCondition(), "False FailedDiscoveryCheck failing or missing response from")
	})
	response := api.get("/apis/ext.test/v1/namespaces/n/things/t")
	if response.code != 503 || string(response.body) != "service unavailable\n" {
		t.Errorf("unavailable server: got status %d: %q, want 503 and %q", response.code, response.body, "service unavailable\n")
	}
	extension.setBroken(false)
	api.waitUntil("available again", func() bool { return api.get("/apis/ext.test/v1/namespaces/n/things/t").code == 200 })

	// 5. An APIService without a service is local: the paths are not served.
	var live map[string]any
	_ = json.Unmarshal(api.get(apiServicesPath+"/v1.ext.test").body, &live)
	const local = "True Local Local APIServices are always available"
	api.mustSend(200, "PATCH", apiServicesPath+"/v1.ext.test",
		`{"spec":{"service":null,"insecureSkipTLSVerify":false}}`, "Content-Type", mergePatch)
	api.waitUntil("local", func() bool { return api.availableCondition() == local })
	for _, path := range []string{"/apis/ext.test/v1/namespaces/n/things/t", "/apis/ext.test/v1"} {
		if response := api.get(path); response.code != 404 {
			t.Errorf("%s without a server: got status %d: %s, want 404", path, response.code, response.body)
		}
	}
	spec, _ := json.Marshal(map[string]any{"spec": live["spec"]})
	api.mustSend(200, "PATCH", apiServicesPath+"/v1.ext.test", string(spec), "Content-Type", mergePatch)
	api.waitUntil("available through its server", func() bool { return api.availableCondition() == "True Passed all checks passed" })

	// 6. Deleting the APIService ends the paths at once.
	api.mustSend(200, "DELETE", apiServicesPath+"/v1.ext.test", "")
	for _, path := range []string{"/apis/ext.test/v1/namespaces/n/things/t", "/apis/ext.test/v1", "/apis/ext.test"} {
		if response := api.get(path); response.code != 404 {
			t.Errorf("%s after the APIService was deleted: got status %d: %s, want 404", path, response.code, response.body)
		}
	}
}

// TestExtensionServerCertificateIsVerified checks that a reachable server with the wrong
// certificate receives no requests.
func TestExtensionServerCertificateIsVerified(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	server := startVerifiedExtension(t, api) // its certificate is for example.com
	api.waitUntil("available", func() bool { return strings.HasPrefix(api.availableCondition(), "True Passed") })
	response := api.get("/apis/ext.test/v1/namespaces/n/things/t")
	if response.code != 503 ||
		!strings.HasPrefix(string(response.body), "error trying to reach service: tls: failed to verify certificate: x509: ") {
		t.Errorf("got status %d: %s, want status 503 and a text that begins with %q",
			response.code, response.body, "error trying to reach service: tls: failed to verify certificate: x509: ")
	}
	if server.lastRequest() != nil {
		t.Error("the server received a request, want none")
	}
}

// TestExtensionServerWithoutEndpointIsUnavailable checks the condition Available, the status code and
// discovery if a Service has no usable endpoint.
func TestExtensionServerWithoutEndpointIsUnavailable(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"cip"},"spec":{"ports":[{"name":"https","port":443}]}}`)
	for _, test := range []struct{ service, port, want string }{
		{service: "none", port: "443", want: `False ServiceNotFound service/none in "default" is not present`},
		{service: "cip", port: "8443", want: `False ServicePortError service/cip in "default" is not listening on port 8443`},
		{service: "cip", port: "443", want: `False EndpointsNotFound cannot find endpoints for service/cip in "default"`},
	} {
		api.mustSend(201, "POST", apiServicesPath,
			`{"metadata":{"name":"v1.ext.test"},"spec":{"group":"ext.test","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,
			"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"`+test.service+`","port":`+test.port+`}}}`)
		api.waitUntil(test.want, func() bool { return api.availableCondition() == test.want })
		if response := api.get("/apis/ext.test/v1"); response.code != 503 {
			t.Errorf("%s: got status %d: %s, want status 503", test.want, response.code, response.body)
		}
		response := api.get("/apis", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if !strings.Contains(string(response.body),
			`{"metadata":{"name":"ext.test","creationTimestamp":null},"versions":[{"version":"v1","freshness":"Stale"}]}`) {
			t.Errorf("%s: got discovery %s, want version v1 with freshness Stale", test.want, response.body)
		}
		api.mustSend(200, "DELETE", apiServicesPath+"/v1.ext.test", "")
	}
}
