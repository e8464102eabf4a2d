package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/config"
)

// TestAuditAnnotationsMatchRecordings replays requests that call webhooks and evaluate policies.
func TestAuditAnnotationsMatchRecordings(t *testing.T) {
	t.Parallel()
	fixture := startAudited(t, nil)
	fixture.prepare(201, "POST", "/api/v1/namespaces/a/configmaps?fieldManager=recorder", `{"metadata":{"name":"ex"},"data":{"k":"v"}}`)
	fixture.prepare(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", deprecatedDefinition)
	hook := newAuditHook(t)
	clean := func() {}
	replayFile(fixture, "4-annotations.json", func(_ int, r *recorded) {
		clean()
		clean = hook.arrange(fixture, r)
	})
	clean()
}

// deprecatedDefinition has a deprecated version.
const deprecatedDefinition = `{"metadata":{"name":"deps.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":"deps","kind":"Dep"},"versions":[
{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
{"name":"v1beta1","served":true,"storage":false,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

// auditHook is a webhook server that responds by path.
type auditHook struct {
	*httptest.Server
	bundle string
}

// newAuditHook starts an admission webhook. The path of its URL selects the response: a patch,
// audit annotations, a rejection or an error.
func newAuditHook(t *testing.T) *auditHook {
	hook := &auditHook{Server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		if err := json.Unmarshal(body, &review); err != nil || r.URL.Path == "/fail" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		response := map[string]any{"uid": review.Request.UID, "allowed": r.URL.Path != "/refuse"}
		patch := func(key string) {
			response["patchType"] = "JSONPatch"
			response["patch"] = base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/data/` + key + `","value":"1"}]`))
		}
		switch r.URL.Path {
		case "/patch":
			patch("a")
			response["auditAnnotations"] = map[string]string{"k": "v"}
		case "/a", "/b":
			patch(r.URL.Path[1:])
		case "/annotate":
			response["auditAnnotations"] = map[string]string{"k": "v", "k2": strings.Repeat("x", 300)}
		case "/refuse":
			response["auditAnnotations"] = map[string]string{"k": "v"}
			response["status"] = map[string]any{"message": "no"}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "admission.k8s.io/v1",
			"kind":       "AdmissionReview",
			"response":   response,
		})
	}))}
	t.Cleanup(hook.Close)
	hook.bundle = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	return hook
}

const admissionPath = "/apis/admissionregistration.k8s.io/v1/"

func (h *auditHook) webhook(name, path, failure, reinvocation string) string {
	return fmt.Sprintf(`{"name":%q,"clientConfig":{"url":"%s%s","caBundle":%q},"failurePolicy":%q%s,"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}`,
		name, h.URL, path, h.bundle, failure, cond(reinvocation, `,"reinvocationPolicy":"`+reinvocation+`"`))
}

func cond(s, text string) string {
	if s == "" {
		return ""
	}
	return text
}

// arrange creates the objects that a recorded request needs, and returns a function that removes
// them.
func (h *auditHook) arrange(fixture *auditFixture, r *recorded) func() {
	mutating := func(name string, hooks ...string) func() {
		return fixture.register("mutatingwebhookconfigurations", name, `"webhooks":[`+strings.Join(hooks, ",")+`]`)
	}
	validating := func(path, failure string) func() {
		return fixture.register("validatingwebhookconfigurations", "conf", `"webhooks":[`+h.webhook("h.ex.test", path, failure, "")+`]`)
	}
	const never = "Never"
	switch r.Name {
	case "mutating webhook patches":
		return mutating("conf", h.webhook("h.ex.test", "/patch", "Fail", never))
	case "mutating webhook patches, level Metadata":
		return mutating("conf", h.webhook("h.ex.test", "/a", "Fail", never))
	case "mutating webhook changes nothing":
		return mutating("conf", h.webhook("h.ex.test", "/", "Fail", never))
	case "mutating webhook fails open":
		return mutating("conf", h.webhook("h.ex.test", "/fail", "Ignore", never))
	case "mutating webhook fails closed":
		return mutating("conf", h.webhook("h.ex.test", "/fail", "Fail", never))
	case "validating webhook with audit annotations":
		return validating("/annotate", "Fail")
	case "validating webhook fails open":
		return validating("/fail", "Ignore")
	case "validating webhook refuses":
		return validating("/refuse", "Fail")
	case "two mutating webhooks with reinvocation":
		return mutating("c", h.webhook("a.ex.test", "/a", "Fail", "IfNeeded"), h.webhook("b.ex.test", "/b", "Fail", never))
	case "policy, action Audit, validation fails":
		return fixture.policy(`"validations":[{"expression":"false","message":"msg"}]`, `"Audit"`)
	case "policy, actions Audit and Warn, two validations fail":
		return fixture.policy(`"validations":[{"expression":"false"},{"expression":"object.data.k=='x'","messageExpression":"'got '+object.data.k"}]`,
			`"Audit","Warn"`)
	case "policy, action Deny":
		return fixture.policy(`"validations":[{"expression":"false","message":"msg"}]`, `"Deny"`)
	case "policy with auditAnnotations":
		return fixture.policy(`"auditAnnotations":[{"key":"high","valueExpression":"'value '+object.metadata.name"}]`, `"Audit"`)
	case "policy, expression error, Audit":
		return fixture.policy(`"validations":[{"expression":"object.data.none=='1'"}]`, `"Audit"`)
	}
	return func() {}
}

func (fixture *auditFixture) register(resource, name, fields string) func() {
	fixture.t.Helper()
	fixture.prepare(201, "POST", admissionPath+resource, fmt.Sprintf(`{"metadata":{"name":%q},%s}`, name, fields))
	return func() { fixture.prepare(200, "DELETE", admissionPath+resource+"/"+name, "") }
}

// policy creates a policy with its binding, and waits until it applies.
func (fixture *auditFixture) policy(spec, actions string) func() {
	fixture.t.Helper()
	rules := `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}`
	p := fixture.register("validatingadmissionpolicies", "pol.ex.test", `"spec":{`+rules+`,`+spec+`}`)
	b := fixture.register("validatingadmissionpolicybindings",
		"bind", `"spec":{"policyName":"pol.ex.test","validationActions":[`+actions+`]}`)
	return func() { b(); p() }
}

// TestLargeAuditEventsAreTruncated replays requests whose events are too large.
func TestLargeAuditEventsAreTruncated(t *testing.T) {
	t.Parallel()
	fixture := startAudited(t, func(options *config.Options) {
		options.Audit.Log.Truncate.Enabled = true
		options.Audit.Log.Truncate.MaxEventSize = 2500
		options.Audit.Log.Truncate.MaxBatchSize = 4000
	})
	replayFile(fixture, "6-truncated.json", nil)
}

// TestConnectionsAreAuditedAsRecorded replays requests that are proxied to a kubelet.
func TestConnectionsAreAuditedAsRecorded(t *testing.T) {
	t.Parallel()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		upgrade := r.Header.Get("Upgrade")
		if upgrade == "" {
			rw.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(rw, "line 1\n")
			return
		}
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgrade+"\r\n\r\nhello")
		_ = conn.Close()
	}))
	defer kubelet.Close()
	fixture := startAudited(t, nil)
	port := kubelet.URL[strings.LastIndex(kubelet.URL, ":")+1:]
	fixture.replace = strings.NewReplacer("<hook>", port)
	fixture.prepare(201, "POST", "/api/v1/nodes",
		`{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"},{"type":"Hostname","address":"localhost"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":`+
			port+`}}}}`)
	fixture.prepare(201, "POST", "/api/v1/namespaces/a/pods",
		`{"metadata":{"name":"p"},"spec":{"nodeName":"n1","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"},{"name":"d","image":"i"}]}}`)
	fixture.prepare(200, "PATCH", "/api/v1/namespaces/a/pods/p/status",
		`{"status":{"podIP":"127.0.0.1","podIPs":[{"ip":"127.0.0.1"}]}}`, "Content-Type", mergePatch)
	replayFile(fixture, "10-kubelet-requests.json", nil)
}

// TestLegacyAuditFormatMatchesRecordings replays requests that were logged in the legacy format.
func TestLegacyAuditFormatMatchesRecordings(t *testing.T) {
	t.Parallel()
	fixture := startAudited(t, func(options *config.Options) { options.Audit.Log.Format = "legacy" })
	for _, recorded := range recordings(t, "7-legacy-format.json") {
		_, id := fixture.ask(&recorded)
		var got []string
		fixture.waitUntil("audited: "+recorded.Name, func() bool {
			got = nil
			for line := range strings.Lines(fixture.read()) {
				if strings.Contains(line, id) {
					got = append(got, strings.TrimSuffix(line, "\n"))
				}
			}
			return len(got) >= len(recorded.Lines)
		})
		for i, want := range recorded.Lines {
			var text string
			if err := json.Unmarshal(want, &text); err != nil {
				t.Fatal(err)
			}
			if g := scrub(got[i]); g != scrub(text) {
				t.Errorf("%s:\n  is %s\nwant %s", recorded.Name, g, text)
			}
		}
		if len(got) != len(recorded.Lines) {
			t.Errorf("%s: got lines %q, want %d", recorded.Name, got, len(recorded.Lines))
		}
	}
}

// posted is a webhook that receives lists of events.
type posted struct {
	*httptest.Server
	bodies chan string
}

func newPosted(t *testing.T) *posted {
	received := &posted{bodies: make(chan string, 100)}
	received.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received.bodies <- string(body)
	}))
	received.EnableHTTP2 = true
	received.StartTLS()
	t.Cleanup(received.Close)
	return received
}

func (p *posted) next(t *testing.T) string {
	t.Helper()
	select {
	case b := <-p.bodies:
		return b
	case <-time.After(20 * time.Second):
		t.Fatal("got no batch within 20 s, want one")
		return ""
	}
}
