package build

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"

	"binnacle/services/apiserver/internal/config"

	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// TestNamespacePermissionsStayInNamespace checks that permissions in one namespace, for one name or for
// one verb allow nothing else, also for paths that could be read in two ways.
func TestNamespacePermissionsStayInNamespace(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, withRBAC)
	for _, namespace := range []string{"mine", "yours"} {
		api.mustSend(201, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace))
		api.mustSend(201, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", configMap("c"))
		api.mustSend(201, "POST", "/api/v1/namespaces/"+namespace+"/pods",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	}
	api.mustSend(201, "POST", rbacPath+"/namespaces/mine/rolebindings", bindingOf("b", "ClusterRole", "cluster-admin", "alice"))
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("proxies",
		`{"apiGroups":["*"],"resources":["*"],"verbs":["proxy"]},{"apiGroups":[""],"resources":["pods"],"verbs":["watch"]}`))
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("one",
		`{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["c"],"verbs":["list","watch","deletecollection"]}`))
	for user, role := range map[string]string{"proxy": "proxies", "one": "one"} {
		b := strings.Replace(bindingOf(user, "ClusterRole", role, user), `"kind":"RoleBinding"`, `"kind":"ClusterRoleBinding"`, 1)
		api.mustSend(201, "POST", rbacPath+"/clusterrolebindings", b)
	}
	api.waitUntil("bound", func() bool {
		return api.send("GET", "/api/v1/namespaces/mine/pods", "", asUser("alice")...).code == 200 &&
			api.send("GET", "/api/v1/pods?watch=1&timeoutSeconds=1", "", asUser("proxy")...).code == 200 &&
			api.send("GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Dc", "", asUser("one")...).code == 200
	})
	var requests sync.WaitGroup // some of them take a second
	defer requests.Wait()
	for _, test := range []struct {
		user, request string
		code          int
	}{
		{user: "alice", request: "GET /api/v1/namespaces/mine/namespaces/yours", code: 404},
		{user: "alice", request: "GET /api/v1/namespaces/mine/namespaces", code: 404},
		{user: "alice", request: "GET /api/v1/namespaces/mine/namespaces?watch=1&timeoutSeconds=1", code: 404},
		{user: "alice", request: "DELETE /api/v1/namespaces/mine/namespaces/yours", code: 404},
		{user: "alice", request: "PUT /api/v1/namespaces/mine/namespaces/yours/finalize", code: 404},
		{user: "alice", request: "GET /api/v1/namespaces/mine/nodes", code: 404},
		{user: "alice", request: "GET /apis/rbac.authorization.k8s.io/v1/namespaces/mine/clusterroles/cluster-admin", code: 404},
		{user: "alice", request: "GET /api/v1/namespaces/mine", code: 200},
		{user: "alice", request: "GET /api/v1/namespaces/yours", code: 403},
		{user: "alice", request: "GET /api/v1/namespaces", code: 403},

		{user: "proxy", request: "GET /api/v1/proxy/namespaces/yours/configmaps/c", code: 404},
		{user: "proxy", request: "GET /api/v1/proxy/configmaps", code: 404},
		{user: "proxy", request: "POST /api/v1/proxy/namespaces/yours/configmaps", code: 404},
		{user: "proxy", request: "PATCH /api/v1/proxy/namespaces/yours/configmaps/c", code: 404},
		{user: "proxy", request: "DELETE /api/v1/proxy/namespaces/yours/configmaps/c", code: 404},
		{user: "proxy", request: "GET /api/v1/namespaces/yours/configmaps/c", code: 403},

		{user: "proxy", request: "GET /api/v1/watch/namespaces/yours/pods?timeoutSeconds=1", code: 200},
		{user: "proxy", request: "GET /api/v1/watch/namespaces/yours/pods/p?timeoutSeconds=1", code: 200},
		{user: "proxy", request: "GET /api/v1/watch/namespaces/yours/pods/p/log?timeoutSeconds=1", code: 403}, // authorized as a watch of pods/log
		{user: "alice", request: "GET /api/v1/watch/namespaces/mine/pods/p/log?timeoutSeconds=1", code: 404},
		{user: "alice", request: "POST /api/v1/watch/namespaces/mine/pods", code: 405},

		{user: "one", request: "GET /api/v1/namespaces/mine/configmaps?fieldSelector=metadata.name%3Dc", code: 200},
		{
			user:    "one",
			request: "GET /api/v1/namespaces/mine/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dc",
			code:    200,
		},
		{
			user:    "one",
			request: "GET /api/v1/watch/namespaces/mine/configmaps/c?timeoutSeconds=1&fieldSelector=metadata.name%3Dd",
			code:    400,
		},
		{user: "one", request: "DELETE /api/v1/namespaces/mine/configmaps?fieldSelector=metadata.name%3Dc", code: 403},

		{
			user:    "alice",
			request: "GET /api/v1/namespaces/mine/configmaps?resourceVersion=999999999&resourceVersionMatch=Exact&timeout=200ms",
			code:    504,
		},
		{user: "alice", request: "GET /api/v1/namespaces/mine/configmaps?resourceVersion=999999999&limit=1&timeout=200ms", code: 504},
		{user: "alice", request: "GET /api/v1/namespaces/mine/configmaps?watch=1&timeoutSeconds=-1", code: 200},
	} {
		requests.Go(func() {
			method, path, _ := strings.Cut(test.request, " ")
			if response := api.send(method, path, configMap("c"), append(asUser(test.user), "Content-Type", contentType(method))...); response.code != test.code {
				t.Errorf("%s: %s: got %d, want %d: %s", test.user, test.request, response.code, test.code, response.body)
			} else if response.code == 504 &&
				(response.header.Get("Retry-After") != "1" ||
					!strings.Contains(string(response.body), "Too large resource version: 999999999, current: ")) {
				t.Errorf("%s: got Retry-After %q: %s, want 1 and the message of a too large resource version",
					test.request, response.header.Get("Retry-After"), response.body)
			}
		})
	}
}

func contentType(method string) string {
	if method == http.MethodPatch {
		return mergePatch
	}
	return "application/json"
}

// TestOnlyAuthorizedActionsHappen sends requests of all shapes, records the access reviews, and
// compares them with what is returned and changed.
func TestOnlyAuthorizedActionsHappen(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	webhook := newAuthorizerWebhook(t)
	webhook.setResponse(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	api := startServer(t, func(options *config.Options) {
		options.Authorization.Modes = []string{"Webhook"}
		options.Authorization.WebhookConfigFile = webhook.file
	})
	state := &clusterState{testServer: api, before: map[string]string{}}
	state.fill()
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	responses := map[int]int{} // number by status code
	for i := range 1500 {
		// 1. Draw a request.
		prefix := pick("", "", "", "", "watch/", "proxy/")
		input := pick("", "namespaces/a/", "namespaces/b/", "namespaces/a/namespaces/b/", "namespaces/a//", "/namespaces/b/")
		resource := pick("configmaps", "serviceaccounts", "namespaces", "priorityclasses", "pods")
		name := pick("", "/a", "/b", "/a", "/b", "//a", "/a/", "/a/status", "/b/log", "/a/finalize", "/a/b", "/a%2Fb",
			"/b/scale", "/../b")
		root := "/api/v1/"
		if resource == "priorityclasses" {
			root = "/apis/scheduling.k8s.io/v1/"
		}
		path := root + prefix + input + resource + name
		query := pick("", "", "watch=1&", "dryRun=All&", "fieldSelector=metadata.name%3Da&",
			"fieldSelector=metadata.name%3Da&watch=1&", "labelSelector=of%3Db&") + "timeoutSeconds=1&resourceVersion=0"
		method := pick("GET", "GET", "GET", "DELETE", "PATCH", "POST", "PUT", "HEAD", "OPTIONS")
		if method == http.MethodGet && (prefix == "watch/" || strings.Contains(query, "watch=1")) && i%20 != 0 {
			continue // each takes a second
		}
		body := fmt.Sprintf(`{"metadata":{"labels":{"of":"x%d"}}}`, i)
		if method == http.MethodPost || method == http.MethodPut {
			body = fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"of":"x%d"}}}`, pick("a", "b", "new"), i)
		}

		// 2. Send it, and compare what it returns and changes with the access review.
		webhook.reviews() // forget earlier reviews
		response := api.send(method, path+"?"+query, body, append(asUser(fmt.Sprint("user", i)), "Content-Type", contentType(method))...)
		reviews := webhook.reviews()
		if len(reviews) == 0 || reviews[0].ResourceAttributes == nil {
			t.Fatalf("%s %s: got no access review of a resource, want one", method, path)
		}
		responses[response.code]++
		state.check(t, method+" "+path+"?"+query, response, reviews)
		if i%100 == 99 {
			state.fill()
		}
	}
	if responses[200] < 50 || responses[404] < 50 || responses[405] < 10 {
		t.Errorf("got responses by status %v, want at least 50 with 200, 50 with 404 and 10 with 405", responses)
	}
}

// clusterState is the state that the requests of a test can see and change.
type clusterState struct {
	*testServer
	before map[string]string // resource/namespace/name → resourceVersion, before the next request
}

// clusterStateKinds maps the kinds of the objects to their resources.
var clusterStateKinds = map[string]string{
	"ConfigMap": "configmaps", "ServiceAccount": "serviceaccounts", "Namespace": "namespaces",
	"PriorityClass": "priorityclasses", "Pod": "pods",
}

// fill creates the objects that are missing, and records the state.
func (w *clusterState) fill() {
	w.t.Helper()
	for _, n := range []string{"a", "b"} {
		meta := fmt.Sprintf(`"metadata":{"name":%q,"labels":{"of":%q}}`, n, n)
		w.send("POST", "/api/v1/namespaces", `{`+meta+`}`)
		w.send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", `{"value":1,`+meta+`}`)
		for _, namespace := range []string{"a", "b"} {
			in := "/api/v1/namespaces/" + namespace
			w.send("POST", in+"/configmaps", `{`+meta+`}`)
			w.send("POST", in+"/serviceaccounts", `{`+meta+`}`)
			w.send("POST", in+"/pods", `{`+meta+`,"spec":{"containers":[{"name":"c","image":"i"}]}}`)
		}
	}
	w.before = w.now()
}

// now returns the state of all objects.
func (w *clusterState) now() map[string]string {
	out := map[string]string{}
	for _, list := range []string{
		"/api/v1/configmaps", "/api/v1/serviceaccounts", "/api/v1/namespaces",
		"/apis/scheduling.k8s.io/v1/priorityclasses", "/api/v1/pods",
	} {
		items, _ := w.get(list).field("items").([]any)
		for _, i := range items {
			m := i.(map[string]any)["metadata"].(map[string]any)
			namespace, _ := m["namespace"].(string)
			out[list[strings.LastIndex(list, "/")+1:]+"/"+namespace+"/"+m["name"].(string)] = m["resourceVersion"].(string)
		}
	}
	return out
}

// check verifies that everything that a request shows or changes was authorized.
func (w *clusterState) check(t *testing.T, request string, r apiResponse, reviews []authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	covers := func(verbs []string, resource, namespace, name string) bool {
		return slices.ContainsFunc(reviews, func(s authorizationv1.SubjectAccessReviewSpec) bool {
			query := s.ResourceAttributes
			if resource == "namespaces" {
				namespace = query.Namespace
				if namespace != "" && namespace != name {
					return false
				}
			}
			return query.Resource == resource && slices.Contains(verbs, query.Verb) &&
				(query.Namespace == "" || query.Namespace == namespace) && (query.Name == "" || query.Name == name)
		})
	}
	if r.code < 300 {
		for _, line := range strings.Split(string(r.body), "\n") {
			for _, o := range objectsIn(line) {
				m, _ := o["metadata"].(map[string]any)
				name, _ := m["name"].(string)
				namespace, _ := m["namespace"].(string)
				if resource := clusterStateKinds[fmt.Sprint(o["kind"])]; resource != "" &&
					!covers([]string{
						"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
					}, resource, namespace, name) {
					t.Errorf("%s: got %s %s/%s in the response, want only what the review covers, %+v",
						request, resource, namespace, name, *reviews[0].ResourceAttributes)
				}
			}
		}
	}
	if strings.HasPrefix(request, "GET") && len(reviews) == 1 &&
		slices.Contains([]string{"get", "list", "watch"}, reviews[0].ResourceAttributes.Verb) {
		return // an authorized read
	}
	now := w.now()
	for key := range now {
		if now[key] == w.before[key] {
			delete(w.before, key)
			continue
		}
		parts := strings.SplitN(key, "/", 3)
		if !covers([]string{"create", "update", "patch", "delete", "deletecollection"}, parts[0], parts[1], parts[2]) {
			t.Errorf("%s: got %s changed, want only what the review covers, %+v", request, key, *reviews[0].ResourceAttributes)
		}
		delete(w.before, key)
	}
	for key := range w.before {
		parts := strings.SplitN(key, "/", 3)
		if !covers([]string{"delete", "deletecollection", "update", "patch"}, parts[0], parts[1], parts[2]) {
			t.Errorf("%s: got %s removed, want only what the review covers, %+v", request, key, *reviews[0].ResourceAttributes)
		}
	}
	w.before = now
}

// objectsIn returns the objects in a line of a response: an object, the items of a list, or the object
// in a watch event.
func objectsIn(line string) []map[string]any {
	var object map[string]any
	if json.Unmarshal([]byte(line), &object) != nil {
		return nil
	}
	if inner, ok := object["object"].(map[string]any); ok {
		object = inner
	}
	items, ok := object["items"].([]any)
	if !ok {
		return []map[string]any{object}
	}
	kind := strings.TrimSuffix(fmt.Sprint(object["kind"]), "List")
	var out []map[string]any
	for _, i := range items {
		if m, ok := i.(map[string]any); ok {
			m["kind"] = kind
			out = append(out, m)
		}
	}
	return out
}
