package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestPolicyParametersAreNotLeaked checks that a user who may write policies cannot read parameters
// through them.
func TestPolicyParametersAreNotLeaked(t *testing.T) {
	t.Parallel()
	a := start(t, func(o *config.Options) { o.Authorization.Modes = []string{"RBAC"} })
	const roles, grants = "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	grant := func(name, group, resources, verbs string) {
		t.Helper()
		a.want(201, "POST", roles, fmt.Sprintf(`{"metadata":{"name":%q},"rules":[{"apiGroups":[%q],"resources":[%s],"verbs":[%s]}]}`,
			name, group, resources, verbs))
		a.want(201, "POST", grants,
			fmt.Sprintf(`{"metadata":{"name":%[1]q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%[1]q},"subjects":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]}`,
				name))
	}
	grant("policies", "admissionregistration.k8s.io", `"*"`, `"*"`)
	bob := func(code int, method, path, body, says string) {
		t.Helper()
		headers := []string{"Impersonate-User", "bob"}
		if method == "PATCH" {
			headers = append(headers, "Content-Type", "application/merge-patch+json")
		}
		if r := a.want(code, method, path, body, headers...); !strings.Contains(string(r.body), says) {
			t.Errorf("%s %s: got %s, want %s", method, path, r.body, says)
		}
	}
	const kind = `"paramKind":{"apiVersion":"v1","kind":"Secret"},`
	const valid = `"validations":[{"expression":"true"}]`
	const onAll = `is invalid: spec.paramKind: Forbidden: user \u0026{bob  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`
	const onOne = `is invalid: spec.paramRef: Forbidden: user \u0026{bob  [system:authenticated] map[]} does not have \"get\" permission on the object referenced by paramRef`
	ref := func(namespace, name string) string {
		return fmt.Sprintf(`%s,"paramRef":{"name":%q,"namespace":%q,"parameterNotFoundAction":"Allow"}`, denies, name, namespace)
	}

	bob(201, "POST", policiesPath, admissionPolicy("plain", "", "configmaps", valid), "")
	bob(201, "POST", bindingsPath, policyBinding("plain", denies), "")
	bob(422, "POST", policiesPath, admissionPolicy("p", "", "configmaps", kind+valid), onAll)
	bob(422, "PATCH", policiesPath+"/plain", `{"spec":{`+strings.TrimSuffix(kind, ",")+`}}`, onAll)
	a.want(201, "POST", policiesPath, admissionPolicy("p", "", "configmaps", kind+valid))
	bob(200, "PATCH", policiesPath+"/p", `{"metadata":{"labels":{"a":"b"}}}`, "")
	bob(422, "POST", bindingsPath, policyBinding("p", ref("default", "s")), onOne)
	bob(422, "POST", bindingsPath, policyBinding("unknown", ref("default", "s")), onOne)
	a.want(201, "POST", roles,
		`{"metadata":{"name":"one"},"rules":[{"apiGroups":[""],"resources":["secrets"],"resourceNames":["s"],"verbs":["get"]}]}`)
	a.want(201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
		`{"metadata":{"name":"one"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"one"},"subjects":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]}`)
	bob(201, "POST", bindingsPath, policyBinding("p", ref("default", "s")), "")
	const selects = denies + `,"paramRef":{"selector":{},"namespace":"default","parameterNotFoundAction":"Allow"}`
	onMany := strings.Replace(onOne, "get", "list", 1)
	bob(422, "POST", bindingsPath, strings.Replace(policyBinding("p", selects), `"p"`, `"many"`, 1), onMany)
	bob(422, "PATCH", bindingsPath+"/p", `{"spec":{"paramRef":{"namespace":"kube-system"}}}`, onOne)
	bob(422, "PATCH", bindingsPath+"/p", `{"spec":{"paramRef":{"name":"other"}}}`, onOne)
	bob(422, "POST", policiesPath, admissionPolicy("q", "", "configmaps", kind+valid), onAll)
	grant("secrets", "", `"secrets"`, `"get"`)
	bob(201, "POST", policiesPath, admissionPolicy("q", "", "configmaps", kind+valid), "")
	bob(200, "PATCH", bindingsPath+"/p", `{"spec":{"paramRef":{"name":"other"}}}`, "")
}
