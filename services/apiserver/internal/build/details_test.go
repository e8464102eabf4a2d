package build

import (
	"crypto/x509/pkix"
	"encoding/json"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// step is a request and the expected response. has and lacks check the body.
type step struct {
	what               string
	method, path, body string
	header             []string
	code               int
	has                []string
	lacks              []string
}

// steps sends requests in order and checks each response.
func (a *api) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		header := s.header
		if s.method == "PATCH" && header == nil {
			header = []string{"Content-Type", mergePatch}
		}
		r := a.send(s.method, s.path, s.body, header...)
		if r.code != s.code {
			t.Errorf("%s: got %d, want %d: %s", s.what, r.code, s.code, r.body)
			continue
		}
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(r.body, &status)
		body := string(r.body) + "\n" + status.Message
		for _, text := range s.has {
			if !strings.Contains(body, text) {
				t.Errorf("%s: %s lacks %s", s.what, r.body, text)
			}
		}
		for _, text := range s.lacks {
			if strings.Contains(body, text) {
				t.Errorf("%s: %s has %s", s.what, r.body, text)
			}
		}
	}
}

const (
	strategicPatch = "application/strategic-merge-patch+json"
	groupPath      = "/apis/apps/v1/namespaces/default/deployments"
	leasePath      = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
)

// TestWriteDetails covers details that typed clients and controllers depend on.
func TestWriteDetails(t *testing.T) {
	t.Parallel()
	key := signingKey(t)
	a := start(t, func(o *config.Options) { withRBAC(o); issuing(key)(o) })
	const unsafe = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	cm := configMaps
	a.steps(t, []step{
		{what: "an object", method: "POST", path: cm, body: configMap("a", "k", "v"), code: 201},
		{
			what:   "options of another group version",
			method: "DELETE",
			path:   cm + "/a",
			body:   `{"apiVersion":"example.com/v1","kind":"DeleteOptions","dryRun":["All"]}`,
			code:   200,
			has:    []string{`"Success"`},
		},
		{what: "options without a type", method: "DELETE", path: cm + "/a", body: `{"dryRun":["All"]}`, code: 200},
		{
			what:   "options in YAML",
			method: "DELETE",
			path:   cm + "/a",
			body:   "kind: DeleteOptions\ndryRun: [All]\n",
			header: []string{"Content-Type", "application/yaml"},
			code:   200,
		},
		{
			what:   "no options",
			method: "DELETE",
			path:   cm + "/a",
			body:   `{"apiVersion":"v1","kind":"Pod"}`,
			code:   400,
			has:    []string{"decoded object cannot be converted to DeleteOptions"},
		},
		{
			what:   "options that are broken",
			method: "DELETE",
			path:   cm + "/a",
			body:   `{"dryRun":"All"}`,
			code:   400,
			has:    []string{"DeleteOptions"},
		},
		{what: "they deleted nothing", method: "GET", path: cm + "/a", code: 200},

		{
			what:   "a patch of the uid",
			method: "PATCH",
			path:   cm + "/a",
			body:   `{"metadata":{"uid":"x"}}`,
			code:   422,
			has:    []string{`metadata.uid: Invalid value: "x": field is immutable`},
		},
		{
			what:   "the same in other words",
			method: "PATCH",
			path:   cm + "/a",
			body:   `[{"op":"replace","path":"/metadata/uid","value":"x"}]`,
			header: []string{"Content-Type", jsonPatch},
			code:   422,
			has:    []string{"field is immutable"},
		},
		{
			what:   "an update of another one",
			method: "PUT",
			path:   cm + "/a",
			body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"x"}}`,
			code:   409,
			has:    []string{"Precondition failed: UID in precondition: x"},
		},

		{
			what:   "a deployment",
			method: "POST",
			path:   groupPath,
			body:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			code:   201,
		},
		{
			what:   "a scale of another name",
			method: "PUT",
			path:   groupPath + "/d/scale",
			body:   `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":2}}`,
			code:   400,
			has:    []string{"the name of the object (x) does not match the name on the URL (d)"},
		},
		{
			what:   "a scale",
			method: "PUT",
			path:   groupPath + "/d/scale",
			body:   `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":2}}`,
			code:   200,
			has:    []string{`"replicas":2`},
		},
		{
			what:   "a scale of another object",
			method: "PATCH",
			path:   groupPath + "/d/scale",
			body:   `{"metadata":{"uid":"x"},"spec":{"replicas":3}}`,
			code:   409,
			has:    []string{"Precondition failed: UID in precondition: x"},
		},

		{
			what:   "a balanced service",
			method: "POST",
			path:   "/api/v1/namespaces/default/services",
			body:   `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`,
			code:   201,
		},
		{
			what:   "its balancer",
			method: "PATCH",
			path:   "/api/v1/namespaces/default/services/s/status",
			body:   `{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`,
			code:   200,
			has:    []string{"1.2.3.4"},
		},
		{
			what:   "balanced no more",
			method: "PATCH",
			path:   "/api/v1/namespaces/default/services/s",
			body:   `{"spec":{"type":"ClusterIP"}}`,
			code:   200,
			has:    []string{`"loadBalancer":{}`},
			lacks:  []string{"1.2.3.4"},
		},

		{
			what:   "an owned object",
			method: "POST",
			path:   cm,
			body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`,
			code:   201,
		},
		{
			what:   "a list merged without its key",
			method: "PATCH",
			path:   cm + "/o",
			body:   `{"metadata":{"ownerReferences":[{"name":"x"}]}}`,
			header: []string{"Content-Type", strategicPatch},
			code:   422,
			has:    []string{"does not contain declared merge key: uid"},
		},

		{
			what:   "the option for what cannot be read, of a gate that is closed",
			method: "DELETE",
			path:   cm + "/o" + unsafe,
			code:   200,
			has:    []string{`"Success"`},
		},
		{
			what:   "a lease",
			method: "POST",
			path:   leasePath,
			body:   `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`,
			code:   201,
		},
		{
			what:   "an update that needs a version",
			method: "PUT",
			path:   leasePath + "/l",
			body:   `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`,
			code:   422,
			has: []string{
				`leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update`,
			},
		},

		{
			what:   "an API service",
			method: "POST",
			path:   "/apis/apiregistration.k8s.io/v1/apiservices",
			body:   `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.x.example.com","labels":{"a":"b"}},"spec":{"group":"x.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"name":"s","namespace":"d"}}}`,
			code:   201,
		},
		{
			what:   "its status alone",
			method: "PATCH",
			path:   "/apis/apiregistration.k8s.io/v1/apiservices/v1.x.example.com/status",
			body:   `{"metadata":{"labels":{"a":"c"},"annotations":{"x":"y"}},"spec":{"versionPriority":7},"status":{"conditions":[{"type":"T","status":"True"}]}}`,
			code:   200,
			has:    []string{`"labels":{"a":"b"}`, `"versionPriority":100`, `"type":"T"`},
			lacks:  []string{`"annotations":{"x`},
		},
	})
}

// TestManagedFieldsOfResetFields expects the managed fields that Kubernetes records.
func TestManagedFieldsOfResetFields(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	a.steps(t, []step{
		{
			what:   "a range's status at its creation",
			method: "POST",
			path:   "/apis/networking.k8s.io/v1/servicecidrs",
			body:   `{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"c"},"spec":{"cidrs":["10.9.0.0/24"]},"status":{"conditions":[{"type":"T","status":"True","reason":"R","message":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
			code:   201,
			has:    []string{`"f:status":{"f:conditions"`},
		},
		{
			what:   "a policy",
			method: "POST",
			path:   policies,
			body:   `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"v"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nones"]}]},"validations":[{"expression":"true"}]}}`,
			code:   201,
		},
		{
			what:   "metadata with a policy's status",
			method: "PATCH",
			path:   policies + "/v/status?fieldManager=m",
			body:   `{"metadata":{"labels":{"q":"r"}},"status":{"observedGeneration":1}}`,
			code:   200,
			has:    []string{`"subresource":"status"`},
			lacks:  []string{`"f:labels"`, `"q":"r"`},
		},
	})
	request := strings.Replace(requestFor(t, "r", "example.com/s", pkix.Name{CommonName: "x"}), `"name":"r"`,
		`"name":"r","labels":{"c":"d"}`, 1)
	if r := a.want(201, "POST", requestsPath, request); strings.Contains(string(r.body), "f:spec") {
		t.Errorf("got managed fields: %s", r.body)
	}
	a.steps(t, []step{
		{
			what:   "an immutable spec of a request",
			method: "PATCH",
			path:   requestsPath + "/r?fieldManager=m",
			body:   `{"metadata":{"labels":{"a":"b"}},"spec":{"expirationSeconds":7777}}`,
			code:   200,
			has:    []string{`"f:a":{}`},
			lacks:  []string{"7777", `"f:expirationSeconds"`},
		},
	})
}

// TestMetadataErrorCauses checks that all causes are returned, as often as in Kubernetes.
func TestMetadataErrorCauses(t *testing.T) {
	t.Parallel()
	a := shared(t)
	configMaps := a.own("configmaps")
	causes := func(r answer) (out []string) {
		all, _ := r.at("details", "causes").([]any)
		for _, c := range all {
			field, _ := c.(map[string]any)["field"].(string)
			out = append(out, strings.TrimPrefix(field, "metadata."))
		}
		return out
	}
	a.want(201, "POST", configMaps, configMap("a"))
	a.want(201, "POST", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"f","finalizers":["a.b/c"]}}`)
	a.want(200, "DELETE", configMaps+"/f", "")
	for _, c := range []struct{ name, patch, want string }{
		{"f", `{"metadata":{"finalizers":["a.b/c","a.b/d"]}}`, "finalizers finalizers"},
		{"a", `{"metadata":{"labels":{"x y":"z"},"annotations":{"/x":"1"}}}`,
			"labels annotations labels annotations labels annotations labels annotations"},
		{"a", `{"metadata":{"deletionTimestamp":"2024-01-01T00:00:00Z","deletionGracePeriodSeconds":7}}`,
			"deletionTimestamp deletionGracePeriodSeconds deletionTimestamp deletionGracePeriodSeconds"},
	} {
		r := a.want(422, "PATCH", configMaps+"/"+c.name, c.patch, "Content-Type", mergePatch)
		if got := strings.Join(causes(r), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.patch, got, c.want)
		}
	}
}

// TestDeletionDetails covers the deletion of objects and of namespaces.
func TestDeletionDetails(t *testing.T) {
	t.Parallel()
	key := signingKey(t)
	a := start(t, issuing(key))
	a.account()
	const ending = "/api/v1/namespaces/ending"
	pod := func(name, more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{` + more + `"containers":[{"name":"c","image":"i"}]}}`
	}
	a.steps(t, []step{
		{what: "a pod", method: "POST", path: podsPath, body: pod("p", `"nodeName":"gone",`), code: 201},
		{
			what:   "its deletion",
			method: "DELETE",
			path:   podsPath + "/p",
			code:   200,
			has:    []string{`"deletionGracePeriodSeconds":30`, `"generation":2`},
		},
		{
			what:   "the second one",
			method: "DELETE",
			path:   podsPath + "/p",
			body:   `{"gracePeriodSeconds":0}`,
			code:   200,
			has:    []string{`"deletionGracePeriodSeconds":0`, `"generation":2`},
		},
		{what: "it is gone", method: "GET", path: podsPath + "/p", code: 404},

		{
			what:   "a namespace",
			method: "POST",
			path:   "/api/v1/namespaces",
			body:   `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ending","generation":4},"spec":{"finalizers":["kubernetes"]}}`,
			code:   201,
			has:    []string{`"generation":4`},
		},
		{
			what:   "an account",
			method: "POST",
			path:   ending + "/serviceaccounts",
			body:   `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`,
			code:   201,
		},
		{what: "a pod in it", method: "POST", path: ending + "/pods", body: pod("p", ""), code: 201},
		{what: "the namespace ends", method: "DELETE", path: ending, code: 200, has: []string{`"generation":4`, "Terminating"}},
		{
			what:   "token",
			method: "POST",
			path:   ending + "/serviceaccounts/default/token",
			body:   `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`,
			code:   403,
			has:    []string{"it is being terminated"},
		},
		{
			what:   "binding",
			method: "POST",
			path:   ending + "/pods/p/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"name":"n"}}`,
			code:   403,
			has:    []string{`pods "p" is forbidden`},
		},
		{
			what:   "bindings",
			method: "POST",
			path:   ending + "/bindings",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"name":"n"}}`,
			code:   403,
			has:    []string{`bindings "p" is forbidden`},
		},
		{
			what:   "eviction",
			method: "POST",
			path:   ending + "/pods/p/eviction",
			body:   `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`,
			code:   403,
			has:    []string{"it is being terminated"},
		},
		{
			what:   "a review there",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/namespaces/ending/localsubjectaccessreviews",
			body:   `{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview","metadata":{"namespace":"ending"},"spec":{"user":"u","resourceAttributes":{"namespace":"ending","verb":"get","resource":"pods"}}}`,
			code:   201,
		},

		{
			what:   "a definition",
			method: "POST",
			path:   definitionsPath,
			body:   definitionOf("endings", "Ending", ""),
			code:   201,
			has:    []string{`"generation":1`},
		},
		{what: "it ends", method: "DELETE", path: definitionsPath + "/endings.example.com", code: 200, lacks: []string{`"generation":2`}},

		{what: "a pod on a node that is not there", method: "POST", path: podsPath, body: pod("q", `"nodeName":"gone",`), code: 201},
		{what: "its log", method: "GET", path: podsPath + "/q/log", code: 404, has: []string{`pods "gone" not found`}},
		{
			what:   "bound as if elsewhere",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","namespace":"ending"},"target":{"name":"n"}}`,
			code:   400,
			has:    []string{"the namespace of the provided object does not match the namespace sent on the request"},
		},
		{
			what:   "bound by the collection as if elsewhere",
			method: "POST",
			path:   "/api/v1/namespaces/default/bindings",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","namespace":"ending"},"target":{"name":"n"}}`,
			code:   400,
			has:    []string{"the namespace of the provided object does not match the namespace sent on the request"},
		},
		{
			what:   "bound without a name",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","target":{"name":"n"}}`,
			code:   400,
			has:    []string{"name in URL does not match name in Binding object"},
		},
		{
			what:   "bound by the collection without a name",
			method: "POST",
			path:   "/api/v1/namespaces/default/bindings",
			body:   `{"apiVersion":"v1","kind":"Binding","target":{"name":"n"}}`,
			code:   400,
			has:    []string{"Name parameter required."},
		},
		{
			what:   "bound twice",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q"},"target":{"name":"n"}}`,
			code:   409,
			has:    []string{`Operation cannot be fulfilled on pods/binding "q"`},
		},
		{
			what:   "bound as another one",
			method: "POST",
			path:   podsPath + "/q/binding",
			body:   `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"q","uid":"x"},"target":{"name":"n"}}`,
			code:   409,
			has:    []string{`Operation cannot be fulfilled on pods "q": Precondition failed`},
		},
	})
}

// TestReadDetails covers reads and access reviews.
func TestReadDetails(t *testing.T) {
	t.Parallel()
	key := signingKey(t)
	a := start(t, func(o *config.Options) { withRBAC(o); issuing(key)(o) })
	a.account()
	for _, name := range []string{"a", "b", "c"} {
		a.want(201, "POST", configMaps, configMap(name))
	}
	const partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	token := a.token("default", `{}`)
	review := func(kind, version, more string) string {
		return `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"namespace":"other"},"spec":{` + more + `}}`
	}
	const authentication, authorization = "authentication.k8s.io/v1", "authorization.k8s.io/v1"
	a.steps(t, []step{
		{
			what:   "any version, with a limit",
			method: "GET",
			path:   configMaps + "?limit=1&resourceVersion=0",
			code:   200,
			has:    []string{`"name":"a"`, `"name":"c"`},
			lacks:  []string{"continue", "remainingItemCount"},
		},
		{
			what:   "the newest version, with a limit",
			method: "GET",
			path:   configMaps + "?limit=1",
			code:   200,
			has:    []string{`"name":"a"`, "continue"},
			lacks:  []string{`"name":"c"`},
		},
		{what: "watch on an object's path", method: "GET", path: configMaps + "/a?watch=1", code: 200, has: []string{`"kind":"ConfigMap"`}},
		{
			what:   "a deletion as partial metadata",
			method: "DELETE",
			path:   configMaps + "/a",
			header: []string{"Accept", partial},
			code:   200,
			has:    []string{`"kind":"Status"`, `"Success"`},
		},
		{
			what:   "rules, without the question",
			method: "POST",
			path:   "/apis/" + authorization + "/selfsubjectrulesreviews",
			body:   review("SelfSubjectRulesReview", authorization, `"namespace":"default"`),
			code:   201,
			has:    []string{`"spec":{}`, `"resourceRules":[`},
			lacks:  []string{"managedFields", `"namespace"`},
		},
		{
			what:   "a review that stands in a namespace",
			method: "POST",
			path:   "/apis/" + authorization + "/subjectaccessreviews",
			body:   review("SubjectAccessReview", authorization, `"user":"u","resourceAttributes":{"verb":"get","resource":"pods"}`),
			code:   201,
			lacks:  []string{"other"},
		},
		{
			what:   "one of a token",
			method: "POST",
			path:   "/apis/" + authentication + "/tokenreviews",
			body:   review("TokenReview", authentication, `"token":"x"`),
			code:   201,
			has:    []string{`"error":"invalid bearer token"`},
			lacks:  []string{"other"},
		},
		{
			what:   "all reasons",
			method: "POST",
			path:   "/apis/" + authentication + "/tokenreviews",
			body:   review("TokenReview", authentication, `"token":"`+token+`","audiences":["elsewhere"]`),
			code:   201,
			has:    []string{`"error":"[invalid bearer token, token audiences [`},
		},
		{
			what:   "an object that stands in no namespace",
			method: "POST",
			path:   "/api/v1/nodes",
			body:   `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","namespace":"other"}}`,
			code:   201,
			lacks:  []string{"other"},
		},
		{
			what:   "core's labels of events",
			method: "GET",
			path:   "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dx",
			code:   400,
			has:    []string{"field label not supported: involvedObject.name"},
		},
		{
			what:   "their own",
			method: "GET",
			path:   "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3Dx,reportingController%3Dy",
			code:   200,
		},
		{
			what:   "discovery's old form alone",
			method: "GET",
			path:   "/apis",
			header: []string{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"},
			code:   406,
		},
		{
			what:   "and with another one",
			method: "GET",
			path:   "/apis",
			header: []string{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"},
			code:   200,
			has:    []string{`"kind":"APIGroupList"`},
		},
	})
	a.want(201, "POST", rbacPath+"/clusterroles", role("binder",
		`{"apiGroups":["rbac.authorization.k8s.io"],"resources":["rolebindings"],"verbs":["*"]}`))
	a.want(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf("binder", "ClusterRole", "binder", "bob"))
	bindings := rbacPath + "/namespaces/default/rolebindings"
	a.eventually("allowed to bind", func() bool { return a.get(bindings, as("bob")...).code == 200 })
	a.steps(t, []step{
		{
			what:   "a role that is not there",
			method: "POST",
			path:   bindings,
			body:   bindingOf("b", "ClusterRole", "none", "alice"),
			header: as("bob"),
			code:   404,
			has:    []string{`rolebindings.rbac.authorization.k8s.io "none" not found`},
		},
	})
}
