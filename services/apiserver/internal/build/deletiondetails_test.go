package build

import (
	"strings"
	"testing"
)

// TestJobCollectionDeletionWarnsOfOrphans checks when the deletion of all jobs without a
// propagation policy has the warning that pods are kept.
func TestJobCollectionDeletionWarnsOfOrphans(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	for _, test := range []struct {
		query  string
		code   int
		warned bool
	}{
		{query: "labelSelector=a%3Db", code: 200, warned: true},
		{query: "labelSelector=a%3Db&propagationPolicy=Orphan", code: 200},
		{query: "resourceVersion=x", code: 400, warned: true},
		{query: "fieldSelector=a%3Db", code: 400},
	} {
		response := api.mustSend(test.code, "DELETE", "/apis/batch/v1/namespaces/default/jobs?"+test.query, "")
		warning := response.header.Get("Warning")
		if got := strings.Contains(warning, "child pods are preserved by default"); got != test.warned {
			t.Errorf("%s: got warning %q, want one: %t", test.query, warning, test.warned)
		}
	}
}

// TestDeletionsFollowOptions checks the effects of delete options, and that a terminating namespace
// accepts no new objects.
func TestDeletionsFollowOptions(t *testing.T) {
	t.Parallel()
	key := signingKey(t)
	api := startServer(t, issuing(key))
	api.createDefaultAccount()
	const ending = "/api/v1/namespaces/ending"
	pod := func(name, more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` +
			name + `"},"spec":{` + more + `"containers":[{"name":"c","image":"i"}]}}`
	}
	api.steps(t, []step{
		{name: "create a pod", method: "POST", path: podsPath, body: pod("p", `"nodeName":"gone",`), code: 201},
		{
			name:   "delete the pod gracefully",
			method: "DELETE",
			path:   podsPath + "/p",
			code:   200,
			has:    []string{`"deletionGracePeriodSeconds":30`, `"generation":2`},
		},
		{
			name:   "delete the pod at once",
			method: "DELETE",
			path:   podsPath + "/p",
			body:   `{"gracePeriodSeconds":0}`,
			code:   200,
			has:    []string{`"deletionGracePeriodSeconds":0`, `"generation":2`},
		},
		{name: "the pod is gone", method: "GET", path: podsPath + "/p", code: 404},

		{
			name:   "create a namespace",
			method: "POST",
			path:   "/api/v1/namespaces",
			body:   `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ending","generation":4},"spec":{"finalizers":["kubernetes"]}}`,
			code:   201,
			has:    []string{`"generation":4`},
		},
		{
			name:   "create a service account in it",
			method: "POST",
			path:   ending + "/serviceaccounts",
			body:   `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`,
			code:   201,
		},
		{name: "create a pod in it", method: "POST", path: ending + "/pods", body: pod("p", ""), code: 201},
		{name: "delete the namespace", method: "DELETE", path: ending, code: 200, has: []string{`"generation":4`, "Terminating"}},
		{
			name:   "a token request in a terminating namespace",
			method: "POST",
			path:   ending + "/serviceaccounts/default/token",
			body:   `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`,
			code:   403,
			has:    []string{"it is being terminated"},
		},
		{
			name:   "a pod binding in a terminating namespace",
			method: "POST",
			path:   ending + "/pods/p/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"name":"n"}}`,
			code:   403,
			has:    []string{`pods "p" is forbidden`},
		},
		{
			name:   "a binding in a terminating namespace",
			method: "POST",
			path:   ending + "/bindings",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"name":"n"}}`,
			code:   403,
			has:    []string{`bindings "p" is forbidden`},
		},
		{
			name:   "an eviction in a terminating namespace",
			method: "POST",
			path:   ending + "/pods/p/eviction",
			body:   `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`,
			code:   403,
			has:    []string{"it is being terminated"},
		},
		{
			name:   "a review in a terminating namespace is allowed",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/namespaces/ending/localsubjectaccessreviews",
			body:   `{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview","metadata":{"namespace":"ending"},"spec":{"user":"u","resourceAttributes":{"namespace":"ending","verb":"get","resource":"pods"}}}`,
			code:   201,
		},

		{
			name:   "create a definition",
			method: "POST",
			path:   definitionsPath,
			body:   definitionOf("endings", "Ending", ""),
			code:   201,
			has:    []string{`"generation":1`},
		},
		{
			name:   "delete the definition",
			method: "DELETE",
			path:   definitionsPath + "/endings.example.com",
			code:   200,
			lacks:  []string{`"generation":2`},
		},

		{name: "create a pod on a missing node", method: "POST", path: podsPath, body: pod("q", `"nodeName":"gone",`), code: 201},
		{
			name:   "the log of a pod on a missing node",
			method: "GET",
			path:   podsPath + "/q/log",
			code:   404,
			has:    []string{`pods "gone" not found`},
		},
		{
			name:   "a pod binding with another namespace",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","namespace":"ending"},"target":{"name":"n"}}`,
			code:   400,
			has:    []string{"the namespace of the provided object does not match the namespace sent on the request"},
		},
		{
			name:   "a binding with another namespace",
			method: "POST",
			path:   "/api/v1/namespaces/default/bindings",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","namespace":"ending"},"target":{"name":"n"}}`,
			code:   400,
			has:    []string{"the namespace of the provided object does not match the namespace sent on the request"},
		},
		{
			name:   "a pod binding without a name",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","target":{"name":"n"}}`,
			code:   400,
			has:    []string{"name in URL does not match name in Binding object"},
		},
		{
			name:   "a binding without a name",
			method: "POST",
			path:   "/api/v1/namespaces/default/bindings",
			body:   `{"apiVersion":"v1","kind":"Binding","target":{"name":"n"}}`,
			code:   400,
			has:    []string{"Name parameter required."},
		},
		{
			name:   "a binding of a bound pod",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q"},"target":{"name":"n"}}`,
			code:   409,
			has:    []string{`Operation cannot be fulfilled on pods/binding "q"`},
		},
		{
			name:   "a pod binding with another UID",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","uid":"x"},"target":{"name":"n"}}`,
			code:   409,
			has:    []string{`Operation cannot be fulfilled on pods "q": Precondition failed`},
		},
	})
}
