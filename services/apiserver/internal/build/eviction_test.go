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

// account creates the service account default.
func (a *api) account() {
	a.t.Helper()
	a.want(201, "POST", "/api/v1/namespaces/default/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
}

// pod creates a pod on a node, with a status.
func (a *api) pod(name, node, status string) {
	a.t.Helper()
	a.want(201, "POST", podsPath,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"x"}},"spec":{"nodeName":%q,"automountServiceAccountToken":false,"containers":[{"name":"c","image":"x:1","ports":[{"containerPort":8080}]}]}}`,
			name, node))
	if status != "" {
		a.want(200, "PATCH", podsPath+"/"+name+"/status", `{"status":`+status+`}`, "Content-Type", mergePatch)
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
	api := start(t, nil)
	api.account()
	evict := func(code int, name, more string) answer {
		t.Helper()
		return api.want(code, "POST", podsPath+"/"+name+"/eviction", eviction(name, more))
	}
	gone := func(name string) {
		t.Helper()
		if r := api.get(podsPath + "/" + name); r.code != 404 && r.at("metadata", "deletionTimestamp") == nil {
			t.Errorf("after the eviction of %s: got status %d: %s, want 404 or a deletionTimestamp", name, r.code, r.body)
		}
	}
	budget := func(status string) {
		t.Helper()
		api.want(200, "PATCH", budgetsPath+"/b/status", `{"status":`+status+`}`, "Content-Type", mergePatch)
	}
	for _, name := range []string{"a", "b", "c", "free"} {
		api.pod(name, "n", ready)
	}
	api.pod("bad", "n", unready)
	api.pod("done", "n", `{"phase":"Succeeded"}`)
	api.pod("waiting", "", "")
	evict(404, "none", "")
	evict(404, "none", `,"deleteOptions":{"dryRun":["Foo"]}`)
	r := api.want(400, "POST", podsPath+"/a/eviction", eviction("b", ""))
	const otherName = "name in URL does not match name in Eviction object"
	if got := r.at("message"); got != otherName {
		t.Errorf("got message %v, want %q", got, otherName)
	}

	r = api.want(400, "POST", podsPath+"/a/eviction",
		strings.Replace(eviction("a", ""), `"name":"a"`, `"name":"a","namespace":"other"`, 1))
	const otherNamespace = "the namespace of the provided object does not match the namespace sent on the request"
	if got := r.at("message"); got != otherNamespace {
		t.Errorf("got message %v, want %q", got, otherNamespace)
	}

	r = evict(422, "free", `,"deleteOptions":{"propagationPolicy":"Sideways"}`)
	text := fmt.Sprint(r.at("message"))
	if !strings.HasPrefix(text, `DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: `) {
		t.Errorf("got message %s, want it to begin with the field propagationPolicy of DeleteOptions", text)
	}
	evict(201, "free", "") // no budget selects it
	gone("free")
	if text := fmt.Sprint(api.get(podsPath+"/free").at("status", "conditions")); !strings.Contains(text, "EvictionByEvictionAPI") {
		t.Errorf("got conditions %s, want EvictionByEvictionAPI", text)
	}
	api.want(201, "POST", budgetsPath,
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"minAvailable":2,"selector":{"matchLabels":{"app":"x"}}}}`)
	r = evict(429, "a", "") // the budget has no status yet
	if text := string(r.body); !strings.Contains(text, "The disruption budget b is still being processed by the server.") ||
		r.header.Get("Retry-After") != "10" || !strings.Contains(text, `"DisruptionBudget"`) {
		t.Errorf("got headers %v and body %s, want a body with %q, Retry-After %s, and a body with %q",
			r.header, text, "The disruption budget b is still being processed by the server.", "10", `"DisruptionBudget"`)
	}
	budget(`{"observedGeneration":1,"disruptionsAllowed":1,"currentHealthy":3,"desiredHealthy":2,"expectedPods":3}`)
	evict(201, "a", `,"deleteOptions":{"dryRun":["All"]}`)
	api.want(201, "POST", podsPath+"/a/eviction?dryRun=All", eviction("a", ""))
	if n := api.get(budgetsPath+"/b").at("status", "disruptionsAllowed"); n != 1.0 {
		t.Errorf("after a dry run: got %v allowed disruptions, want 1", n)
	}
	evict(409, "a", `,"deleteOptions":{"preconditions":{"uid":"other"}}`)
	budget(`{"disruptionsAllowed":1,"currentHealthy":3}`)
	api.want(201, "POST", podsPath+"/a/eviction", strings.Replace(eviction("a", ""), "policy/v1", "policy/v1beta1", 1))
	gone("a")
	b := api.get(budgetsPath + "/b")
	disrupted, _ := b.at("status", "disruptedPods").(map[string]any)
	if b.at("status", "disruptionsAllowed") != 0.0 ||
		disrupted["a"] == nil ||
		!strings.Contains(string(b.body), "InsufficientPods") {
		t.Errorf("after the eviction: got budget %s, want no allowed disruption, pod a disrupted, reason InsufficientPods", b.body)
	}
	if text := fmt.Sprint(b.at("metadata", "managedFields")); !strings.Contains(text,
		"manager:kube-apiserver operation:Update subresource:status") ||
		!strings.Contains(text, "f:disruptedPods") {
		t.Errorf("got managed fields %s, want f:disruptedPods of kube-apiserver", text)
	}
	r = evict(429, "b", "")
	if text := string(r.body); !strings.Contains(text, "Cannot evict pod as it would violate the pod's disruption budget.") ||
		!strings.Contains(text, "does not allow evicting pods currently") {
		t.Error(text)
	}
	budget(`{"currentHealthy":2}`)
	r = evict(429, "b", "")
	if !strings.Contains(string(r.body), "The disruption budget b needs 2 healthy pods and has 2 currently") {
		t.Errorf("got body %s, want it to contain %q", r.body, "The disruption budget b needs 2 healthy pods and has 2 currently")
	}
	evict(201, "bad", "") // unhealthy, and enough others are healthy
	gone("bad")
	evict(201, "done", "")
	gone("done")
	evict(201, "waiting", "")
	gone("waiting")

	api.pod("bad2", "n", unready)
	budget(`{"currentHealthy":1}`)
	evict(429, "bad2", "")
	api.want(200, "PATCH", budgetsPath+"/b", `{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`, "Content-Type", mergePatch)
	evict(201, "bad2", "")
	gone("bad2")

	api.want(201, "POST", budgetsPath,
		`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b2"},"spec":{"minAvailable":1,"selector":{}}}`)
	r = evict(500, "b", "")
	const twoBudgets = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
	if got := r.at("message"); got != twoBudgets {
		t.Errorf("got message %v, want %q", got, twoBudgets)
	}
}
