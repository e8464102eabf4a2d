package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// mutatingServer serves mutating webhooks. Each path has a patch for its response, or none.
type mutatingServer struct {
	*httptest.Server
	mu      sync.Mutex
	patches map[string]string
	called  []string
}

func newMutatingServer(t *testing.T) *mutatingServer {
	t.Helper()
	webhook := &mutatingServer{patches: map[string]string{}}
	webhook.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		webhook.mu.Lock()
		defer webhook.mu.Unlock()
		webhook.called = append(webhook.called, r.URL.Path)
		patch := ""
		if p := webhook.patches[r.URL.Path]; p != "" {
			patch = fmt.Sprintf(`,"patchType":"JSONPatch","patch":%q`, base64.StdEncoding.EncodeToString([]byte(p)))
		}
		fmt.Fprintf(w,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true%s}}`,
			review.Request.UID, patch)
	}))
	t.Cleanup(webhook.Close)
	return webhook
}

// setPatch sets the patch of a path and forgets earlier calls.
func (s *mutatingServer) setPatch(path, patch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patches[path], s.called = patch, nil
}

func (s *mutatingServer) calledPaths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called
}

// webhook returns the configuration of a webhook for a resource in a version.
func (s *mutatingServer) webhook(path, version, resource, more string) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return fmt.Sprintf(`{"name":"%s.ex.test","clientConfig":{"url":%q,"caBundle":%q},"rules":[{"apiGroups":["*"],"apiVersions":[%q],"resources":[%q],
		"operations":["CREATE","UPDATE","CONNECT"]}],"sideEffects":"None","admissionReviewVersions":["v1"]%s}`, path[1:], s.URL+
		path, ca, version, resource, more)
}

const mutatingHooksPath = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

// TestWebhookSelectorsSeeEarlierChanges checks that the object selectors of later webhooks see the
// changes of earlier ones, in any version.
func TestWebhookSelectorsSeeEarlierChanges(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	webhook := newMutatingServer(t)
	const kind = "horizontalpodautoscalers"
	labelled := `,"objectSelector":{"matchLabels":{"x":"y"}}`
	api.mustSend(201, "POST", mutatingHooksPath, `{"metadata":{"name":"h"},"webhooks":[`+webhook.webhook("/labels", "v2", kind, "")+`,`+
		webhook.webhook("/other", "v1", kind, labelled)+`,`+webhook.webhook("/same", "v2", kind, labelled)+`]}`)
	webhook.setPatch("/labels", `[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`)
	api.mustSend(201, "POST", "/apis/autoscaling/v1/namespaces/default/"+kind,
		`{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d"}}}`)
	if got := fmt.Sprint(webhook.calledPaths()); got != "[/labels /other /same]" {
		t.Errorf("got calls %s, want [/labels /other /same]", got)
	}
}

// TestDefaultsApplyAfterWebhooks checks that a webhook may remove fields that have defaults.
func TestDefaultsApplyAfterWebhooks(t *testing.T) {
	t.Parallel()
	api := startServer(t, issuing(signingKey(t)))
	webhook := newMutatingServer(t)
	api.mustSend(201, "POST", accounts, object("ServiceAccount", "sa", ""))
	api.mustSend(201, "POST", configMaps, object("ConfigMap", "c", ""))
	api.mustSend(201, "POST", mutatingHooksPath,
		`{"metadata":{"name":"h"},"webhooks":[`+webhook.webhook("/token", "*", "serviceaccounts/token", "")+
			`,`+webhook.webhook("/map", "*", "configmaps", "")+`]}`)
	webhook.setPatch("/token", `[{"op":"remove","path":"/spec/expirationSeconds"}]`)
	response := api.mustSend(201, "POST", accounts+"/sa/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":7200}}`)
	if seconds := response.field("spec", "expirationSeconds"); seconds != float64(3600) {
		t.Errorf("got a token for %v s, want 3600", seconds)
	}
	for i, patch := range []string{
		`[{"op":"remove","path":"/metadata/namespace"}]`,
		`[{"op":"remove","path":"/metadata/uid"},{"op":"remove","path":"/metadata/resourceVersion"}]`,
		`[{"op":"replace","path":"/metadata/resourceVersion","value":"0"}]`,
	} {
		webhook.setPatch("/map", patch)
		response := api.send("PATCH", configMaps+"/c", fmt.Sprintf(`{"data":{"i":"%d"}}`, i), "Content-Type", "application/merge-patch+json")
		if response.code != 200 || response.field("metadata", "namespace") != "default" || response.field("data", "i") != fmt.Sprint(i) {
			t.Errorf("%s: got status %d: %s, want status 200 and %q and %v", patch, response.code, response.body, "default", fmt.Sprint(i))
		}
	}
}

// TestWebhooksChangeConnectOptions checks that a connection uses the options as webhooks changed
// them, and that validation sees the same options.
func TestWebhooksChangeConnectOptions(t *testing.T) {
	t.Parallel()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(kubelet.Close)
	api := startServer(t, nil)
	webhook := newMutatingServer(t)
	api.createDefaultAccount()
	api.createNode("n", kubelet.URL)
	api.createPod("p", "n", "")
	api.mustSend(201, "POST", mutatingHooksPath, `{"metadata":{"name":"h"},"webhooks":[`+webhook.webhook("/proxy", "*", "nodes/proxy", "")+`,`+
		webhook.webhook("/exec", "*", "pods/exec", "")+`,`+webhook.webhook("/attach", "*", "pods/attach", "")+`]}`)
	for patch, want := range map[string]string{
		"": "GET /asked ",
		`[{"op":"replace","path":"/path","value":"/other/"}]`: "GET /other/ ",
		`[{"op":"replace","path":"/path","value":"other"}]`:   "GET /other ",
	} {
		webhook.setPatch("/proxy", patch)
		if response := api.get("/api/v1/nodes/n/proxy/asked"); response.code != 200 || !strings.HasPrefix(string(response.body), want) {
			t.Errorf("%s: got status %d: %s, want 200 and a body that begins with %q", patch, response.code, response.body, want)
		}
	}
	for _, sub := range []string{"exec", "attach"} {
		webhook.setPatch("/"+sub, `[{"op":"add","path":"/container","value":"other"}]`)
		if response := api.send("POST", podsPath+"/p/"+sub+"?command=x&stdout=true&container=c", ""); response.code != 400 ||
			response.field("message") != "container other is not valid for pod p" {
			t.Errorf("%s: got status %d: %s, want status 400 and %q", sub, response.code, response.body, "container other is not valid for pod p")
		}
	}
}

// TestWebhooksChangeScale checks that only the replicas of a changed scale are stored and validated, and
// that a change of its uid or resource version is a conflict.
func TestWebhooksChangeScale(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	webhook := newMutatingServer(t)
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	api.mustSend(201, "POST", deployments,
		`{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	api.mustSend(201, "POST", mutatingHooksPath,
		`{"metadata":{"name":"h"},"webhooks":[`+webhook.webhook("/scale", "*", "deployments/scale", "")+`]}`)
	api.mustSend(201, "POST", policiesPath, admissionPolicy("p", "apps", "deployments/scale",
		`"validations":[{"expression":"object.metadata.name == 'd' && object.metadata.uid == oldObject.metadata.uid && !has(object.metadata.labels) && object.spec.replicas == 9"}]`))
	api.mustSend(201, "POST", bindingsPath, policyBinding("p", denyAction))
	webhook.setPatch("/scale", `[{"op":"replace","path":"/spec/replicas","value":9},{"op":"replace","path":"/metadata/name","value":"x"},
		{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`)
	response := api.mustSend(200, "PATCH", deployments+"/d/scale", `{"spec":{"replicas":2}}`, "Content-Type", "application/merge-patch+json")
	if response.field("metadata", "name") != "d" || response.field("spec", "replicas") != float64(9) {
		t.Errorf("got scale %s, want the name d and 9 replicas", response.body)
	}
	for field, code := range map[string]int{"uid": 409, "resourceVersion": 409} {
		webhook.setPatch("/scale",
			`[{"op":"replace","path":"/spec/replicas","value":9},{"op":"replace","path":"/metadata/`+field+`","value":"1"}]`)
		if response := api.send("PATCH", deployments+"/d/scale", `{"spec":{"replicas":3}}`, "Content-Type",
			"application/merge-patch+json"); response.code != code {
			t.Errorf("webhook changes the %s: got status %d: %s, want %d", field, response.code, response.body, code)
		}
	}
}
