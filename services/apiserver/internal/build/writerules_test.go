package build

import (
	"crypto/x509/pkix"
	"strings"
	"testing"
)

const strategicPatch = "application/strategic-merge-patch+json"

// TestDeleteReadsDeleteOptionsOfAnyVersion checks that DELETE accepts DeleteOptions of any group version
// and encoding, and rejects other kinds without a deletion.
func TestDeleteReadsDeleteOptionsOfAnyVersion(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	api.steps(t, []step{
		{name: "create an object", method: "POST", path: configMaps, body: configMap("a", "k", "v"), code: 201},
		{
			name:   "delete options of another group version",
			method: "DELETE",
			path:   configMaps + "/a",
			body:   `{"apiVersion":"example.com/v1","kind":"DeleteOptions","dryRun":["All"]}`,
			code:   200,
			has:    []string{`"Success"`},
		},
		{name: "delete options without a type", method: "DELETE", path: configMaps + "/a", body: `{"dryRun":["All"]}`, code: 200},
		{
			name:   "delete options in YAML",
			method: "DELETE",
			path:   configMaps + "/a",
			body:   "kind: DeleteOptions\ndryRun: [All]\n",
			header: []string{"Content-Type", "application/yaml"},
			code:   200,
		},
		{
			name:   "delete with another kind as options",
			method: "DELETE",
			path:   configMaps + "/a",
			body:   `{"apiVersion":"v1","kind":"Pod"}`,
			code:   400,
			has:    []string{"decoded object cannot be converted to DeleteOptions"},
		},
		{
			name:   "delete with invalid options",
			method: "DELETE",
			path:   configMaps + "/a",
			body:   `{"dryRun":"All"}`,
			code:   400,
			has:    []string{"DeleteOptions"},
		},
		{name: "the dry runs and errors deleted nothing", method: "GET", path: configMaps + "/a", code: 200},
	})
}

// TestUIDOfObjectIsImmutable checks that a patch of the UID is invalid, and that an update with
// another UID conflicts.
func TestUIDOfObjectIsImmutable(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	api.steps(t, []step{
		{name: "create an object", method: "POST", path: configMaps, body: configMap("a", "k", "v"), code: 201},
		{
			name:   "a merge patch of the UID",
			method: "PATCH",
			path:   configMaps + "/a",
			body:   `{"metadata":{"uid":"x"}}`,
			code:   422,
			has:    []string{`metadata.uid: Invalid value: "x": field is immutable`},
		},
		{
			name:   "a JSON patch of the UID",
			method: "PATCH",
			path:   configMaps + "/a",
			body:   `[{"op":"replace","path":"/metadata/uid","value":"x"}]`,
			header: []string{"Content-Type", jsonPatch},
			code:   422,
			has:    []string{"field is immutable"},
		},
		{
			name:   "an update with another UID",
			method: "PUT",
			path:   configMaps + "/a",
			body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"x"}}`,
			code:   409,
			has:    []string{"Precondition failed: UID in precondition: x"},
		},
	})
}

// TestScaleWritesAreValidated checks that a write of the scale subresource must agree with the object
// in name and UID, and that its metadata and spec are validated.
func TestScaleWritesAreValidated(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	deployments := "/apis/apps/v1/namespaces/" + api.namespace + "/deployments"
	api.steps(t, []step{
		{
			name:   "create a deployment",
			method: "POST",
			path:   deployments,
			body:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			code:   201,
		},
		{
			name:   "a scale with another name",
			method: "PUT",
			path:   deployments + "/d/scale",
			body:   `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":2}}`,
			code:   400,
			has:    []string{"the name of the object (x) does not match the name on the URL (d)"},
		},
		{
			name:   "update the scale",
			method: "PUT",
			path:   deployments + "/d/scale",
			body:   `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":2}}`,
			code:   200,
			has:    []string{`"replicas":2`},
		},
		{
			name:   "a scale with invalid metadata",
			method: "PUT",
			path:   deployments + "/d/scale",
			body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","generateName":"%","labels":{"a":"%"},"annotations":{"/a":"b"}},
				"spec":{"replicas":-1}}`,
			code: 422,
			has: []string{
				`"metadata.generateName"`, `"metadata.labels"`, `"metadata.annotations"`, `"spec.replicas"`,
				`Scale.autoscaling \"d\" is invalid`,
			},
		},
		{
			name:   "a scale with an invalid label in a patch",
			method: "PATCH",
			path:   deployments + "/d/scale",
			body:   `{"metadata":{"labels":{"a":"%"}}}`,
			code:   422,
			has:    []string{`"metadata.labels"`},
		},
		{
			name:   "a scale with another UID",
			method: "PATCH",
			path:   deployments + "/d/scale",
			body:   `{"metadata":{"uid":"x"},"spec":{"replicas":3}}`,
			code:   409,
			has:    []string{"Precondition failed: UID in precondition: x"},
		},
	})
}

// TestServiceTypeChangeClearsLoadBalancer checks that a service that is no load balancer any more loses
// the addresses in its status.
func TestServiceTypeChangeClearsLoadBalancer(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	services := api.namespaced("services")
	api.steps(t, []step{
		{
			name:   "create a service with a load balancer",
			method: "POST",
			path:   services,
			body:   `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`,
			code:   201,
		},
		{
			name:   "set the address of the load balancer",
			method: "PATCH",
			path:   services + "/s/status",
			body:   `{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`,
			code:   200,
			has:    []string{"1.2.3.4"},
		},
		{
			name:   "a change of the type clears the address",
			method: "PATCH",
			path:   services + "/s",
			body:   `{"spec":{"type":"ClusterIP"}}`,
			code:   200,
			has:    []string{`"loadBalancer":{}`},
			lacks:  []string{"1.2.3.4"},
		},
	})
}

// TestStrategicPatchRequiresMergeKey checks that a strategic patch is invalid if an element of a list
// lacks the merge key.
func TestStrategicPatchRequiresMergeKey(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	api.steps(t, []step{
		{
			name:   "create an owned object",
			method: "POST",
			path:   configMaps,
			body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`,
			code:   201,
		},
		{
			name:   "a strategic patch of a list without the merge key",
			method: "PATCH",
			path:   configMaps + "/o",
			body:   `{"metadata":{"ownerReferences":[{"name":"x"}]}}`,
			header: []string{"Content-Type", strategicPatch},
			code:   422,
			has:    []string{"does not contain declared merge key: uid"},
		},
	})
}

// TestIgnoreReadErrorsIsIgnoredWithoutGate checks that an ordinary deletion takes place while the
// feature gate of the option is disabled.
func TestIgnoreReadErrorsIsIgnoredWithoutGate(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	const ignoreReadErrors = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	api.steps(t, []step{
		{name: "create an object", method: "POST", path: configMaps, body: configMap("a", "k", "v"), code: 201},
		{
			name:   "the option for unreadable objects is ignored while its feature gate is disabled",
			method: "DELETE",
			path:   configMaps + "/a" + ignoreReadErrors,
			code:   200,
			has:    []string{`"Success"`},
		},
	})
}

// TestLeaseUpdateRequiresResourceVersion checks that a lease cannot be updated unconditionally.
func TestLeaseUpdateRequiresResourceVersion(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	leases := "/apis/coordination.k8s.io/v1/namespaces/" + api.namespace + "/leases"
	api.steps(t, []step{
		{
			name:   "create a lease",
			method: "POST",
			path:   leases,
			body:   `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`,
			code:   201,
		},
		{
			name:   "an update of a lease without a resource version",
			method: "PUT",
			path:   leases + "/l",
			body:   `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`,
			code:   422,
			has: []string{
				`leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update`,
			},
		},
	})
}

// TestAPIServiceStatusPatchKeepsSpecAndMetadata checks that a patch of the status changes nothing else.
// The server is not shared, because the APIService appears in discovery.
func TestAPIServiceStatusPatchKeepsSpecAndMetadata(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"
	api.steps(t, []step{
		{
			name:   "create an APIService",
			method: "POST",
			path:   apiServices,
			body:   `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.x.example.com","labels":{"a":"b"}},"spec":{"group":"x.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"name":"s","namespace":"d"}}}`,
			code:   201,
		},
		{
			name:   "a patch of the status changes neither labels nor spec",
			method: "PATCH",
			path:   apiServices + "/v1.x.example.com/status",
			body:   `{"metadata":{"labels":{"a":"c"},"annotations":{"x":"y"}},"spec":{"versionPriority":7},"status":{"conditions":[{"type":"T","status":"True"}]}}`,
			code:   200,
			has:    []string{`"labels":{"a":"b"}`, `"versionPriority":100`, `"type":"T"`},
			lacks:  []string{`"annotations":{"x`},
		},
	})
}

// TestManagedFieldsOmitResetFields checks that a manager does not own fields that the strategy of a
// resource resets, because the manager's value was not stored.
func TestManagedFieldsOmitResetFields(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	api.steps(t, []step{
		{
			name:   "the strategy of ServiceCIDR does not reset the status of created objects",
			method: "POST",
			path:   "/apis/networking.k8s.io/v1/servicecidrs",
			body:   `{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"c"},"spec":{"cidrs":["10.9.0.0/24"]},"status":{"conditions":[{"type":"T","status":"True","reason":"R","message":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
			code:   201,
			has:    []string{`"f:status":{"f:conditions"`},
		},
		{
			name:   "create a policy",
			method: "POST",
			path:   policies,
			body:   `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"v"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nones"]}]},"validations":[{"expression":"true"}]}}`,
			code:   201,
		},
		{
			name:   "a patch of the status of a policy resets metadata",
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
	if response := api.mustSend(201, "POST", requestsPath, request); strings.Contains(string(response.body), "f:spec") {
		t.Errorf("got %s, want no managed fields of the spec", response.body)
	}
	api.steps(t, []step{
		{
			name:   "a patch of the immutable spec of a certificate request",
			method: "PATCH",
			path:   requestsPath + "/r?fieldManager=m",
			body:   `{"metadata":{"labels":{"a":"b"}},"spec":{"expirationSeconds":7777}}`,
			code:   200,
			has:    []string{`"f:a":{}`},
			lacks:  []string{"7777", `"f:expirationSeconds"`},
		},
	})
}

// TestMetadataErrorsRepeatCauses checks that a Status lists a cause for every validation that rejects
// the metadata. As in Kubernetes, several validations check the same fields, so causes repeat.
func TestMetadataErrorsRepeatCauses(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	metadataCauses := func(r apiResponse) string {
		var fields []string
		causes, _ := r.field("details", "causes").([]any)
		for _, cause := range causes {
			field, _ := cause.(map[string]any)["field"].(string)
			fields = append(fields, strings.TrimPrefix(field, "metadata."))
		}
		return strings.Join(fields, " ")
	}
	api.mustSend(201, "POST", configMaps, configMap("live"))
	api.mustSend(201, "POST", configMaps,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"terminating","finalizers":["a.b/c"]}}`)
	api.mustSend(200, "DELETE", configMaps+"/terminating", "")
	for _, test := range []struct{ object, patch, wantCauses string }{
		{
			object:     "terminating",
			patch:      `{"metadata":{"finalizers":["a.b/c","a.b/d"]}}`,
			wantCauses: "finalizers finalizers",
		},
		{
			object:     "live",
			patch:      `{"metadata":{"labels":{"x y":"z"},"annotations":{"/x":"1"}}}`,
			wantCauses: "labels annotations labels annotations labels annotations labels annotations",
		},
		{
			object:     "live",
			patch:      `{"metadata":{"deletionTimestamp":"2024-01-01T00:00:00Z","deletionGracePeriodSeconds":7}}`,
			wantCauses: "deletionTimestamp deletionGracePeriodSeconds deletionTimestamp deletionGracePeriodSeconds",
		},
	} {
		response := api.mustSend(422, "PATCH", configMaps+"/"+test.object, test.patch, "Content-Type", mergePatch)
		if got := metadataCauses(response); got != test.wantCauses {
			t.Errorf("%s of the %s object: got causes %q, want %q", test.patch, test.object, got, test.wantCauses)
		}
	}
}
