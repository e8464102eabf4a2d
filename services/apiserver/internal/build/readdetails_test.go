package build

import (
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestReadsFollowParameters checks the effects of the parameters of reads, and the metadata in the
// responses to reviews.
func TestReadsFollowParameters(t *testing.T) {
	t.Parallel()
	key := signingKey(t)
	api := startServer(t, func(options *config.Options) { withRBAC(options); issuing(key)(options) })
	api.createDefaultAccount()
	for _, name := range []string{"a", "b", "c"} {
		api.mustSend(201, "POST", configMaps, configMap(name))
	}
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	token := api.requestToken("default", `{}`)
	review := func(kind, version, more string) string {
		return `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"namespace":"other"},"spec":{` + more + `}}`
	}
	const authentication, authorization = "authentication.k8s.io/v1", "authorization.k8s.io/v1"
	api.steps(t, []step{
		{
			name:   "a list at any version ignores the limit",
			method: "GET",
			path:   configMaps + "?limit=1&resourceVersion=0",
			code:   200,
			has:    []string{`"name":"a"`, `"name":"c"`},
			lacks:  []string{"continue", "remainingItemCount"},
		},
		{
			name:   "a list at the newest version respects the limit",
			method: "GET",
			path:   configMaps + "?limit=1",
			code:   200,
			has:    []string{`"name":"a"`, "continue"},
			lacks:  []string{`"name":"c"`},
		},
		{
			name:   "watch on the path of an object returns the object",
			method: "GET",
			path:   configMaps + "/a?watch=1",
			code:   200,
			has:    []string{`"kind":"ConfigMap"`},
		},
		{
			name:   "a deletion returns a Status although partial metadata was requested",
			method: "DELETE",
			path:   configMaps + "/a",
			header: []string{"Accept", partial},
			code:   200,
			has:    []string{`"kind":"Status"`, `"Success"`},
		},
		{
			name:   "a list of one name ignores the limit and an old version",
			method: "GET",
			path:   configMaps + "?limit=1&resourceVersion=1&fieldSelector=metadata.name%3Db",
			code:   200,
			has:    []string{`"name":"b"`},
		},
		{
			name:   "a watch of componentstatuses rejects sendInitialEvents and ignores the timeout",
			method: "GET",
			path:   "/api/v1/componentstatuses?watch=1&sendInitialEvents=true&timeout=x",
			code:   422,
			has:    []string{"sendInitialEvents is forbidden for watch"},
		},
		{
			name:   "a disruption budget with invalid metadata and spec reports the spec only",
			method: "POST",
			path:   "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
			body:   `{"metadata":{"name":"a","labels":{"a":"b c"}},"spec":{"maxUnavailable":-1}}`,
			code:   422,
			has:    []string{"spec.maxUnavailable"},
			lacks:  []string{"metadata.labels"},
		},
		{
			name:   "componentstatuses reject export",
			method: "GET",
			path:   "/api/v1/componentstatuses/x?export=true",
			code:   400,
			has:    []string{"export parameter"},
		},
		{
			name:   "a rules review returns the rules without the spec",
			method: "POST",
			path:   "/apis/" + authorization + "/selfsubjectrulesreviews",
			body:   review("SelfSubjectRulesReview", authorization, `"namespace":"default"`),
			code:   201,
			has:    []string{`"spec":{}`, `"resourceRules":[`},
			lacks:  []string{"managedFields", `"namespace"`},
		},
		{
			name:   "a SubjectAccessReview drops the namespace",
			method: "POST",
			path:   "/apis/" + authorization + "/subjectaccessreviews",
			body:   review("SubjectAccessReview", authorization, `"user":"u","resourceAttributes":{"verb":"get","resource":"pods"}`),
			code:   201,
			lacks:  []string{"other"},
		},
		{
			name:   "a TokenReview drops the namespace",
			method: "POST",
			path:   "/apis/" + authentication + "/tokenreviews",
			body:   review("TokenReview", authentication, `"token":"x"`),
			code:   201,
			has:    []string{`"error":"invalid bearer token"`},
			lacks:  []string{"other"},
		},
		{
			name:   "a TokenReview reports all reasons",
			method: "POST",
			path:   "/apis/" + authentication + "/tokenreviews",
			body:   review("TokenReview", authentication, `"token":"`+token+`","audiences":["elsewhere"]`),
			code:   201,
			has:    []string{`"error":"[invalid bearer token, token audiences [`},
		},
		{
			name:   "a cluster-scoped object drops the namespace",
			method: "POST",
			path:   "/api/v1/nodes",
			body:   `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","namespace":"other"}}`,
			code:   201,
			lacks:  []string{"other"},
		},
		{
			name:   "events.k8s.io rejects the field labels of core events",
			method: "GET",
			path:   "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dx",
			code:   400,
			has:    []string{"field label not supported: involvedObject.name"},
		},
		{
			name:   "events.k8s.io accepts its own field labels",
			method: "GET",
			path:   "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3Dx,reportingController%3Dy",
			code:   200,
		},
		{
			name:   "the old form of aggregated discovery alone is not acceptable",
			method: "GET",
			path:   "/apis",
			header: []string{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"},
			code:   406,
		},
		{
			name:   "the old form of aggregated discovery next to JSON gives JSON",
			method: "GET",
			path:   "/apis",
			header: []string{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"},
			code:   200,
			has:    []string{`"kind":"APIGroupList"`},
		},
	})
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("binder",
		`{"apiGroups":["rbac.authorization.k8s.io"],"resources":["rolebindings"],"verbs":["*"]}`))
	api.mustSend(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf("binder", "ClusterRole", "binder", "bob"))
	bindings := rbacPath + "/namespaces/default/rolebindings"
	api.waitUntil("allowed to bind", func() bool { return api.get(bindings, asUser("bob")...).code == 200 })
	api.steps(t, []step{
		{
			name:   "a role that is not there",
			method: "POST",
			path:   bindings,
			body:   bindingOf("b", "ClusterRole", "none", "alice"),
			header: asUser("bob"),
			code:   404,
			has:    []string{`rolebindings.rbac.authorization.k8s.io "none" not found`},
		},
	})
}
