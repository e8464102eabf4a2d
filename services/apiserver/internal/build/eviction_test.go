package build

import (
	"fmt"
	"strings"
	"testing"
)

const (
	podsPath    = "/api/v1/namespaces/default/pods"
	budgetsPath = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
)

// createDefaultAccount creates the service account default.
func (api *testServer) createDefaultAccount() {
	api.t.Helper()
	api.mustSend(201, "POST", "/api/v1/namespaces/default/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
}

// createPod creates a pod on a node, with a status.
func (api *testServer) createPod(name, node, status string) {
	api.t.Helper()
	api.mustSend(201, "POST", podsPath,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"x"}},"spec":{"nodeName":%q,"automountServiceAccountToken":false,"containers":[{"name":"c","image":"x:1","ports":[{"containerPort":8080}]}]}}`,
			name, node))
	if status != "" {
		api.mustSend(200, "PATCH", podsPath+"/"+name+"/status", `{"status":`+status+`}`, "Content-Type", mergePatch)
	}
}

const (
	ready   = `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`
	unready = `{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}`
)

func eviction(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}%s}`, name, more)
}

// TestEvictionRespectsBudgets checks when disruption budgets, the state of the pod and
// preconditions allow an eviction.
func TestEvictionRespectsBudgets(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	api.createDefaultAccount()
	evict := func(code int, name, more string) apiResponse {
		t.Helper()
		return api.mustSend(code, "POST", podsPath+"/"+name+"/eviction", eviction(name, more))
	}
	gone := func(name string) {
		t.Helper()
		if response := api.get(podsPath + "/" + name); response.code != 404 && response.field("metadata", "deletionTimestamp") == nil {
			t.Errorf("after the eviction of %s: got status %d: %s, want 404 or a deletionTimestamp", name, response.code, response.body)
		}
	}
	budget := func(status string) {
		t.Helper()
		api.mustSend(200, "PATCH", budgetsPath+"/b/status", `{"status":`+status+`}`, "Content-Type", mergePatch)
	}
	for _, name := range []string{"a", "b", "c", "free"} {
		api.createPod(name, "n", ready)
	}
	api.createPod("bad", "n", unready)
	api.createPod("done", "n", `{"phase":"Succeeded"}`)
	api.createPod("waiting", "", "")
	evict(404, "none", "")
	evict(404, "none", `,"deleteOptions":{"dryRun":["Foo"]}`)
	response := api.mustSend(400, "POST", podsPath+"/a/eviction", eviction("b", ""))
	const otherName = "name in URL does not match name in Eviction object"
	if got := response.field("message"); got != otherName {
		t.Errorf("got message %v, want %q", got, otherName)
	}

	response = api.mustSend(400, "POST", podsPath+"/a/eviction",
		strings.Replace(eviction("a", ""), `"name":"a"`, `"name":"a","namespace":"other"`, 1))
	const otherNamespace = "the namespace of the provided object does not match the namespace sent on the request"
	if got := response.field("message"); got != otherNamespace {
		t.Errorf("got message %v, want %q", got, otherNamespace)
	}

	response = evict(422, "free", `,"deleteOptions":{"propagationPolicy":"Sideways"}`)
	text := fmt.Sprint(response.field("message"))
	if !strings.HasPrefix(text, `DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: `) {
		t.Errorf("got message %s, want it to begin with the field propagationPolicy of DeleteOptions", text)
	}
	evict(201, "free", "") // no budget selects it
	gone("free")
	if text := fmt.Sprint(api.get(podsPath+"/free").field("status", "conditions")); !strings.Contains(text, "EvictionByEvictionAPI") {
		t.Errorf("got conditions %s, want EvictionByEvictionAPI", text)
	}
	api.mustSend(201, "POST", budgetsPath,
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"minAvailable":2,"selector":{"matchLabels":{"app":"x"}}}}`)
	response = evict(429, "a", "") // the budget has no status yet
	if text := string(response.body); !strings.Contains(text, "The disruption budget b is still being processed by the server.") ||
		response.header.Get("Retry-After") != "10" || !strings.Contains(text, `"DisruptionBudget"`) {
		t.Errorf("got headers %v and body %s, want a body with %q, Retry-After %s, and a body with %q",
			response.header, text, "The disruption budget b is still being processed by the server.", "10", `"DisruptionBudget"`)
	}
	budget(`{"observedGeneration":1,"disruptionsAllowed":1,"currentHealthy":3,"desiredHealthy":2,"expectedPods":3}`)
	evict(201, "a", `,"deleteOptions":{"dryRun":["All"]}`)
	api.mustSend(201, "POST", podsPath+"/a/eviction?dryRun=All", eviction("a", ""))
	if n := api.get(budgetsPath+"/b").field("status", "disruptionsAllowed"); n != 1.0 {
		t.Errorf("after a dry run: got %v allowed disruptions, want 1", n)
	}
	evict(409, "a", `,"deleteOptions":{"preconditions":{"uid":"other"}}`)
	budget(`{"disruptionsAllowed":1,"currentHealthy":3}`)
	api.mustSend(201, "POST", podsPath+"/a/eviction", strings.Replace(eviction("a", ""), "policy/v1", "policy/v1beta1", 1))
	gone("a")
	b := api.get(budgetsPath + "/b")
	disrupted, _ := b.field("status", "disruptedPods").(map[string]any)
	if b.field("status", "disruptionsAllowed") != 0.0 ||
		disrupted["a"] == nil ||
		!strings.Contains(string(b.body), "InsufficientPods") {
		t.Errorf("after the eviction: got budget %s, want no allowed disruption, pod a disrupted, reason InsufficientPods", b.body)
	}
	if text := fmt.Sprint(b.field("metadata", "managedFields")); !strings.Contains(text,
		"manager:kube-apiserver operation:Update subresource:status") ||
		!strings.Contains(text, "f:disruptedPods") {
		t.Errorf("got managed fields %s, want f:disruptedPods of kube-apiserver", text)
	}
	response = evict(429, "b", "")
	if text := string(response.body); !strings.Contains(text, "Cannot evict pod as it would violate the pod's disruption budget.") ||
		!strings.Contains(text, "does not allow evicting pods currently") {
		t.Error(text)
	}
	budget(`{"currentHealthy":2}`)
	response = evict(429, "b", "")
	if !strings.Contains(string(response.body), "The disruption budget b needs 2 healthy pods and has 2 currently") {
		t.Errorf("got body %s, want it to contain %q", response.body, "The disruption budget b needs 2 healthy pods and has 2 currently")
	}
	evict(201, "bad", "") // unhealthy, and enough others are healthy
	gone("bad")
	evict(201, "done", "")
	gone("done")
	evict(201, "waiting", "")
	gone("waiting")

	api.createPod("bad2", "n", unready)
	budget(`{"currentHealthy":1}`)
	evict(429, "bad2", "")
	api.mustSend(200, "PATCH", budgetsPath+"/b", `{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`, "Content-Type", mergePatch)
	evict(201, "bad2", "")
	gone("bad2")

	api.mustSend(201, "POST", budgetsPath,
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b2"},"spec":{"minAvailable":1,"selector":{}}}`)
	response = evict(500, "b", "")
	const twoBudgets = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
	if got := response.field("message"); got != twoBudgets {
		t.Errorf("got message %v, want %q", got, twoBudgets)
	}
}
