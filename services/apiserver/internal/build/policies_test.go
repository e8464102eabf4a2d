package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

const (
	policiesPath         = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	bindingsPath         = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	mutatingPoliciesPath = "/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies"
	mutatingBindingsPath = "/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicybindings"
)

// admissionPolicy returns a policy for creates and updates of a resource. more is added to its spec.
func admissionPolicy(name, group, resource, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[%q],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":[%q]}]},%s}}`,
		name, group, resource, more)
}

// policyBinding returns a binding of the policy of the same name. more is added to its spec.
func policyBinding(name, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%[1]q},"spec":{"policyName":%[1]q%[2]s}}`, name, more)
}

const denyAction = `,"validationActions":["Deny"]`

// TestPoliciesApplyAtOnce follows each write that affects policies by a request that depends on it.
func TestPoliciesApplyAtOnce(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.mustSend(201, "POST", definitionsPath, definitionOf("limits", "Limit", ""))
	const dry, limits = configMaps + "?dryRun=All", "/apis/example.com/v1/namespaces/default/limits"
	object := configMap("a", "k", "v")
	denyingPolicy := admissionPolicy("p", "", "configmaps", `"validations":[{"expression":"false","message":"no"}]`)
	allowingPatch := `{"spec":{"validations":[{"expression":"true"}]}}`
	dataLimit := `"validations":[{"expression":"object.data.size() <= int(params.data.max)","message":"too many"}]`
	labelLimit := `"validations":[{"expression":"object.data.size() <= int(params.metadata.labels.max)","message":"above the limit"}]`

	// Each dry run follows the change that decides it without a pause. Repeat, because a delay may
	// show only sometimes.
	for range 5 {
		api.steps(t, []step{
			{name: "create the policy", method: "POST", path: policiesPath, body: denyingPolicy, code: 201},
			{name: "allowed without a binding", method: "POST", path: dry, body: object, code: 201},
			{name: "create its binding", method: "POST", path: bindingsPath, body: policyBinding("p", denyAction), code: 201},
			{name: "denied with a binding", method: "POST", path: dry, body: object, code: 422, has: []string{"no"}},
			{
				name:   "make the binding warn",
				method: "PATCH",
				path:   bindingsPath + "/p",
				body:   `{"spec":{"validationActions":["Warn"]}}`,
				code:   200,
			},
			{name: "allowed with a warning", method: "POST", path: dry, body: object, code: 201},
			{
				name:   "make the binding deny",
				method: "PATCH",
				path:   bindingsPath + "/p",
				body:   `{"spec":{"validationActions":["Deny"]}}`,
				code:   200,
			},
			{name: "denied", method: "POST", path: dry, body: object, code: 422},
			{name: "make the policy allow all", method: "PATCH", path: policiesPath + "/p", body: allowingPatch, code: 200},
			{name: "allowed", method: "POST", path: dry, body: object, code: 201},
			{name: "delete the policy", method: "DELETE", path: policiesPath + "/p", code: 200},
			{name: "create the policy again", method: "POST", path: policiesPath, body: denyingPolicy, code: 201},
			{name: "denied again", method: "POST", path: dry, body: object, code: 422},
			{name: "delete the binding", method: "DELETE", path: bindingsPath + "/p", code: 200},
			{name: "allowed again", method: "POST", path: dry, body: object, code: 201},
			{name: "delete the policy", method: "DELETE", path: policiesPath + "/p", code: 200},

			{
				name:   "create a policy with a ConfigMap as parameter",
				method: "POST",
				path:   policiesPath,
				body:   admissionPolicy("m", "", "configmaps", `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`+dataLimit),
				code:   201,
			},
			{
				name:   "create its binding",
				method: "POST",
				path:   bindingsPath,
				body: policyBinding("m",
					denyAction+
						`,"paramRef":{"name":"max","parameterNotFoundAction":"Deny"},"matchResources":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"],"resourceNames":["a"]}]}`),
				code: 201,
			},
			{name: "denied without the parameter", method: "POST", path: dry, body: object, code: 422, has: []string{"no params found"}},
			{name: "create the parameter", method: "POST", path: configMaps, body: configMap("max", "max", "1"), code: 201},
			{name: "allowed within the limit", method: "POST", path: dry, body: object, code: 201},
			{name: "lower the limit", method: "PATCH", path: configMaps + "/max", body: `{"data":{"max":"0"}}`, code: 200},
			{name: "denied beyond the limit", method: "POST", path: dry, body: object, code: 422, has: []string{"too many"}},
			{name: "delete the parameter", method: "DELETE", path: configMaps + "/max", code: 200},
			{
				name:   "denied without the parameter again",
				method: "POST",
				path:   dry,
				body:   object,
				code:   422,
				has:    []string{"no params found"},
			},
			{name: "delete the binding", method: "DELETE", path: bindingsPath + "/m", code: 200},
			{name: "delete the policy", method: "DELETE", path: policiesPath + "/m", code: 200},

			{
				name:   "create a policy with custom resources as parameters",
				method: "POST",
				path:   policiesPath,
				body:   admissionPolicy("l", "", "configmaps", `"paramKind":{"apiVersion":"example.com/v1","kind":"Limit"},`+labelLimit),
				code:   201,
			},
			{
				name:   "create its binding",
				method: "POST",
				path:   bindingsPath,
				body:   policyBinding("l", denyAction+`,"paramRef":{"selector":{},"parameterNotFoundAction":"Allow"}`),
				code:   201,
			},
			{name: "allowed without parameters", method: "POST", path: dry, body: object, code: 201},
			{
				name:   "create a parameter",
				method: "POST",
				path:   limits,
				body:   `{"apiVersion":"example.com/v1","kind":"Limit","metadata":{"name":"x","labels":{"max":"1"}}}`,
				code:   201,
			},
			{name: "allowed within the limit", method: "POST", path: dry, body: object, code: 201},
			{
				name:   "create another parameter with a lower limit",
				method: "POST",
				path:   limits,
				body:   `{"apiVersion":"example.com/v1","kind":"Limit","metadata":{"name":"y","labels":{"max":"0"}}}`,
				code:   201,
			},
			{name: "denied beyond the limit", method: "POST", path: dry, body: object, code: 422, has: []string{"above the limit"}},
			{name: "delete the lower limit", method: "DELETE", path: limits + "/y", code: 200},
			{name: "allowed within the other limit", method: "POST", path: dry, body: object, code: 201},
			{name: "delete all parameters", method: "DELETE", path: limits, code: 200},
			{name: "delete the binding", method: "DELETE", path: bindingsPath + "/l", code: 200},
			{name: "delete the policy", method: "DELETE", path: policiesPath + "/l", code: 200},
		})
	}
}

// TestPoliciesCannotBlockTheirOwnRepair checks that a policy can be changed whatever it says.
func TestPoliciesCannotBlockTheirOwnRepair(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	everything := strings.Replace(admissionPolicy("all", "*", "*",
		`"validations":[{"expression":"false","message":"nothing goes"}]`), `"v1"`, `"*"`, 1)
	api.mustSend(201, "POST", policiesPath, everything)
	api.mustSend(201, "POST", bindingsPath, policyBinding("all", denyAction))
	api.steps(t, []step{
		{name: "create an object", method: "POST", path: configMaps, body: configMap("a"), code: 422, has: []string{"nothing goes"}},
		{
			name:   "create a webhook configuration",
			method: "POST",
			path:   "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
			body:   `{"metadata":{"name":"w"}}`,
			code:   422,
			has:    []string{"nothing goes"},
		},
		{
			name:   "create an access review",
			method: "POST",
			path:   "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			body:   `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`,
			code:   201,
		},
		{name: "create another binding", method: "POST", path: bindingsPath, body: policyBinding("other", denyAction), code: 201},
		{
			name:   "create another policy",
			method: "POST",
			path:   policiesPath,
			body:   strings.Replace(everything, `"all"`, `"other"`, 1),
			code:   201,
		},
		{name: "label the policy", method: "PATCH", path: policiesPath + "/all", body: `{"metadata":{"labels":{"a":"b"}}}`, code: 200},
		{name: "delete the bindings", method: "DELETE", path: bindingsPath, code: 200},
		{name: "create the object", method: "POST", path: configMaps, body: configMap("a"), code: 201},
	})
}

// TestPoliciesSeeTheVersionTheyMatch checks that policies see the version and the subresources that
// they name.
func TestPoliciesSeeTheVersionTheyMatch(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	const (
		scalers     = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
		deployments = "/apis/apps/v1/namespaces/default/deployments"
	)
	api.mustSend(201, "POST", policiesPath, admissionPolicy("e", "autoscaling", "horizontalpodautoscalers",
		`"validations":[{"expression":"object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage <= 50","message":"too much"}]`))
	api.mustSend(201, "POST", bindingsPath, policyBinding("e", denyAction))
	api.mustSend(201, "POST", policiesPath, admissionPolicy("s", "apps", "deployments/scale",
		`"validations":[{"expression":"object.spec.replicas < 3 && request.subResource == 'scale'","message":"too many replicas"}]`))
	api.mustSend(201, "POST", bindingsPath, policyBinding("s", denyAction))
	scaler := func(percent int) string {
		return fmt.Sprintf(`{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":%d}}}]}}`,
			percent)
	}
	api.steps(t, []step{
		{name: "create a scaler of v2", method: "POST", path: scalers, body: scaler(40), code: 201},
		{name: "denied by its form of v1", method: "PATCH", path: scalers + "/h", body: scaler(60), code: 422, has: []string{"too much"}},
		{
			name:   "make the policy exact",
			method: "PATCH",
			path:   policiesPath + "/e",
			body:   `{"spec":{"matchConstraints":{"matchPolicy":"Exact"}}}`,
			code:   200,
		},
		{name: "allowed, as the policy does not match v2", method: "PATCH", path: scalers + "/h", body: scaler(60), code: 200},
		{
			name:   "create a deployment",
			method: "POST",
			path:   deployments,
			body:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":5,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			code:   201,
		},
		{name: "scale it", method: "PATCH", path: deployments + "/d/scale", body: `{"spec":{"replicas":2}}`, code: 200},
		{
			name:   "scale it above the limit",
			method: "PATCH",
			path:   deployments + "/d/scale",
			body:   `{"spec":{"replicas":4}}`,
			code:   422,
			has:    []string{"too many replicas"},
		},
	})
}

// TestMutatingPoliciesApplyAtOnce is TestPoliciesApplyAtOnce for mutating policies.
func TestMutatingPoliciesApplyAtOnce(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		_ = options.RuntimeConfig.Set("admissionregistration.k8s.io/v1alpha1=true")
		if err := options.Features.Set("MutatingAdmissionPolicy=true"); err != nil {
			t.Fatal(err)
		}
	})
	const dry = configMaps + "?dryRun=All"
	mutation := func(value string) string {
		return `"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{data: {'set': '` +
			value + `'}}"}}]`
	}
	object := configMap("a", "k", "v")
	for range 5 {
		api.steps(t, []step{
			{
				name:   "create the policy",
				method: "POST",
				path:   mutatingPoliciesPath,
				body:   admissionPolicy("p", "", "configmaps", mutation("one")),
				code:   201,
			},
			{name: "unchanged before it is bound", method: "POST", path: dry, body: object, code: 201, lacks: []string{`"set":"one"`}},
			{name: "create its binding", method: "POST", path: mutatingBindingsPath, body: policyBinding("p", ""), code: 201},
			{name: "changed with a binding", method: "POST", path: dry, body: object, code: 201, has: []string{`"set":"one"`}},
			{name: "change the value", method: "PATCH", path: mutatingPoliciesPath + "/p", body: `{"spec":{` + mutation("two") + `}}`, code: 200},
			{name: "changed to the new value", method: "POST", path: dry, body: object, code: 201, has: []string{`"set":"two"`}},
			{name: "delete the binding", method: "DELETE", path: mutatingBindingsPath + "/p", code: 200},
			{name: "unchanged without a binding", method: "POST", path: dry, body: object, code: 201, lacks: []string{`"set":`}},
			{name: "delete the policy", method: "DELETE", path: mutatingPoliciesPath + "/p", code: 200},
		})
	}
}
