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
				t.Errorf("%s: got %s, want it to contain %s", s.what, r.body, text)
			}
		}
		for _, text := range s.lacks {
			if strings.Contains(body, text) {
				t.Errorf("%s: got %s, want it without %s", s.what, r.body, text)
			}
		}
	}
}

const (
	strategicPatch = "application/strategic-merge-patch+json"
	leasePath      = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
)

// TestWriteDetails covers details that typed clients and controllers depend on.
func TestWriteDetails(t *testing.T) {
	t.Parallel()
	key := signingKey(t)
	a := start(t, func(o *config.Options) { withRBAC(o); issuing(key)(o) })
	const ignoreReadErrors = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	cm := configMaps
	a.steps(t, []step{
		{what: "create an object", method: "POST", path: cm, body: configMap("a", "k", "v"), code: 201},
		{
			what:   "delete options of another group version",
			method: "DELETE",
			path:   cm + "/a",
			body:   `{"apiVersion":"example.com/v1","kind":"DeleteOptions","dryRun":["All"]}`,
			code:   200,
			has:    []string{`"Success"`},
		},
		{what: "delete options without a type", method: "DELETE", path: cm + "/a", body: `{"dryRun":["All"]}`, code: 200},
		{
			what:   "delete options in YAML",
			method: "DELETE",
			path:   cm + "/a",
			body:   "kind: DeleteOptions\ndryRun: [All]\n",
			header: []string{"Content-Type", "application/yaml"},
			code:   200,
		},
		{
			what:   "delete with another kind as options",
			method: "DELETE",
			path:   cm + "/a",
			body:   `{"apiVersion":"v1","kind":"Pod"}`,
			code:   400,
			has:    []string{"decoded object cannot be converted to DeleteOptions"},
		},
		{
			what:   "delete with invalid options",
			method: "DELETE",
			path:   cm + "/a",
			body:   `{"dryRun":"All"}`,
			code:   400,
			has:    []string{"DeleteOptions"},
		},
		{what: "the dry runs and errors deleted nothing", method: "GET", path: cm + "/a", code: 200},

		{
			what:   "a merge patch of the UID",
			method: "PATCH",
			path:   cm + "/a",
			body:   `{"metadata":{"uid":"x"}}`,
			code:   422,
			has:    []string{`metadata.uid: Invalid value: "x": field is immutable`},
		},
		{
			what:   "a JSON patch of the UID",
			method: "PATCH",
			path:   cm + "/a",
			body:   `[{"op":"replace","path":"/metadata/uid","value":"x"}]`,
			header: []string{"Content-Type", jsonPatch},
			code:   422,
			has:    []string{"field is immutable"},
		},
		{
			what:   "an update with another UID",
			method: "PUT",
			path:   cm + "/a",
			body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"x"}}`,
			code:   409,
			has:    []string{"Precondition failed: UID in precondition: x"},
		},

		{
			what:   "create a deployment",
			method: "POST",
			path:   deploymentsPath,
			body:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			code:   201,
		},
		{
			what:   "a scale with another name",
			method: "PUT",
			path:   deploymentsPath + "/d/scale",
			body:   `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":2}}`,
			code:   400,
			has:    []string{"the name of the object (x) does not match the name on the URL (d)"},
		},
		{
			what:   "update the scale",
			method: "PUT",
			path:   deploymentsPath + "/d/scale",
			body:   `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":2}}`,
			code:   200,
			has:    []string{`"replicas":2`},
		},
		{
			what:   "a scale with invalid metadata",
			method: "PUT",
			path:   deploymentsPath + "/d/scale",
			body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","generateName":"%","labels":{"a":"%"},"annotations":{"/a":"b"}},
				"spec":{"replicas":-1}}`,
			code: 422,
			has: []string{
				`"metadata.generateName"`, `"metadata.labels"`, `"metadata.annotations"`, `"spec.replicas"`,
				`Scale.autoscaling \"d\" is invalid`,
			},
		},
		{
			what:   "a scale with an invalid label in a patch",
			method: "PATCH",
			path:   deploymentsPath + "/d/scale",
			body:   `{"metadata":{"labels":{"a":"%"}}}`,
			code:   422,
			has:    []string{`"metadata.labels"`},
		},
		{
			what:   "a scale with another UID",
			method: "PATCH",
			path:   deploymentsPath + "/d/scale",
			body:   `{"metadata":{"uid":"x"},"spec":{"replicas":3}}`,
			code:   409,
			has:    []string{"Precondition failed: UID in precondition: x"},
		},

		{
			what:   "create a service with a load balancer",
			method: "POST",
			path:   "/api/v1/namespaces/default/services",
			body:   `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`,
			code:   201,
		},
		{
			what:   "set the address of the load balancer",
			method: "PATCH",
			path:   "/api/v1/namespaces/default/services/s/status",
			body:   `{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`,
			code:   200,
			has:    []string{"1.2.3.4"},
		},
		{
			what:   "a change of the type clears the address",
			method: "PATCH",
			path:   "/api/v1/namespaces/default/services/s",
			body:   `{"spec":{"type":"ClusterIP"}}`,
			code:   200,
			has:    []string{`"loadBalancer":{}`},
			lacks:  []string{"1.2.3.4"},
		},

		{
			what:   "create an owned object",
			method: "POST",
			path:   cm,
			body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`,
			code:   201,
		},
		{
			what:   "a strategic patch of a list without the merge key",
			method: "PATCH",
			path:   cm + "/o",
			body:   `{"metadata":{"ownerReferences":[{"name":"x"}]}}`,
			header: []string{"Content-Type", strategicPatch},
			code:   422,
			has:    []string{"does not contain declared merge key: uid"},
		},

		{
			what:   "the option for unreadable objects is ignored while its feature gate is disabled",
			method: "DELETE",
			path:   cm + "/o" + ignoreReadErrors,
			code:   200,
			has:    []string{`"Success"`},
		},
		{
			what:   "create a lease",
			method: "POST",
			path:   leasePath,
			body:   `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`,
			code:   201,
		},
		{
			what:   "an update of a lease without a resource version",
			method: "PUT",
			path:   leasePath + "/l",
			body:   `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`,
			code:   422,
			has: []string{
				`leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update`,
			},
		},

		{
			what:   "create an APIService",
			method: "POST",
			path:   "/apis/apiregistration.k8s.io/v1/apiservices",
			body:   `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.x.example.com","labels":{"a":"b"}},"spec":{"group":"x.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"name":"s","namespace":"d"}}}`,
			code:   201,
		},
		{
			what:   "a patch of the status changes neither labels nor spec",
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
			what:   "a created ServiceCIDR keeps its status",
			method: "POST",
			path:   "/apis/networking.k8s.io/v1/servicecidrs",
			body:   `{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"c"},"spec":{"cidrs":["10.9.0.0/24"]},"status":{"conditions":[{"type":"T","status":"True","reason":"R","message":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
			code:   201,
			has:    []string{`"f:status":{"f:conditions"`},
		},
		{
			what:   "create a policy",
			method: "POST",
			path:   policies,
			body:   `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"v"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nones"]}]},"validations":[{"expression":"true"}]}}`,
			code:   201,
		},
		{
			what:   "a patch of the status of a policy resets metadata",
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
		t.Errorf("got %s, want no managed fields of the spec", r.body)
	}
	a.steps(t, []step{
		{
			what:   "a patch of the immutable spec of a certificate request",
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
		{name: "f", patch: `{"metadata":{"finalizers":["a.b/c","a.b/d"]}}`, want: "finalizers finalizers"},
		{
			name:  "a",
			patch: `{"metadata":{"labels":{"x y":"z"},"annotations":{"/x":"1"}}}`,
			want:  "labels annotations labels annotations labels annotations labels annotations",
		},
		{
			name:  "a",
			patch: `{"metadata":{"deletionTimestamp":"2024-01-01T00:00:00Z","deletionGracePeriodSeconds":7}}`,
			want:  "deletionTimestamp deletionGracePeriodSeconds deletionTimestamp deletionGracePeriodSeconds",
		},
	} {
		r := a.want(422, "PATCH", configMaps+"/"+c.name, c.patch, "Content-Type", mergePatch)
		if got := strings.Join(causes(r), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.patch, got, c.want)
		}
	}
}
