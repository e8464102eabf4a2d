package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

const (
	clusterRolesPath        = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	clusterRoleBindingsPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

// secretPolicy returns a policy that accepts all objects and has secrets as parameters.
func secretPolicy(name string) string {
	return admissionPolicy(name, "", "configmaps",
		`"paramKind":{"apiVersion":"v1","kind":"Secret"},"validations":[{"expression":"true"}]`)
}

// paramBinding returns a binding of a policy to the parameters that paramRef, a list of JSON members,
// refers to.
func paramBinding(name, policy, paramRef string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%q},"spec":{"policyName":%q%s,"paramRef":{%s,"parameterNotFoundAction":"Allow"}}}`,
		name, policy, denyAction, paramRef)
}

// grantToBob creates a cluster role with one rule, and binds it to the user bob. groups, resources and
// verbs are JSON lists.
func (api *testServer) grantToBob(t *testing.T, name, groups, resources, verbs string) {
	t.Helper()
	api.mustSend(201, "POST", clusterRolesPath, fmt.Sprintf(`{"metadata":{"name":%q},"rules":[{"apiGroups":%s,"resources":%s,"verbs":%s}]}`,
		name, groups, resources, verbs))
	api.mustSend(201, "POST", clusterRoleBindingsPath,
		fmt.Sprintf(`{"metadata":{"name":%[1]q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%[1]q},"subjects":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]}`,
			name))
}

// TestPolicyParametersRequirePermission checks that a user who may write policies and bindings cannot
// read parameters through them. The user needs get on all objects of paramKind, and get or list on
// what paramRef refers to.
func TestPolicyParametersRequirePermission(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) { options.Authorization.Modes = []string{"RBAC"} })
	const (
		errNeedsGetOnKind = `is invalid: spec.paramKind: Forbidden: user \u0026{bob  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`
		errNeedsGetOnRef  = `is invalid: spec.paramRef: Forbidden: user \u0026{bob  [system:authenticated] map[]} does not have \"get\" permission on the object referenced by paramRef`
		errNeedsListOnRef = `is invalid: spec.paramRef: Forbidden: user \u0026{bob  [system:authenticated] map[]} does not have \"list\" permission on the object referenced by paramRef`
		secretS           = `"name":"s","namespace":"default"`
		allSecrets        = `"selector":{},"namespace":"default"`
	)
	type bobStep struct {
		name               string
		method, path, body string
		code               int
		wantErr            string // part of the response
	}
	asBob := func(steps ...bobStep) {
		t.Helper()
		for _, s := range steps {
			headers := asUser("bob")
			if s.method == "PATCH" {
				headers = append(headers, "Content-Type", mergePatch)
			}
			if response := api.send(s.method, s.path, s.body, headers...); response.code != s.code || !strings.Contains(string(response.body), s.wantErr) {
				t.Errorf("%s: got %d %s, want %d and %q", s.name, response.code, response.body, s.code, s.wantErr)
			}
		}
	}
	api.grantToBob(t, "policies", `["admissionregistration.k8s.io"]`, `["*"]`, `["*"]`)

	// 1. Without any permission on secrets.
	asBob(
		bobStep{
			name: "create a policy without parameters", method: "POST", path: policiesPath,
			body: admissionPolicy("plain", "", "configmaps", `"validations":[{"expression":"true"}]`), code: 201,
		},
		bobStep{
			name: "create a binding without parameters", method: "POST", path: bindingsPath,
			body: policyBinding("plain", denyAction), code: 201,
		},
		bobStep{
			name: "create a policy with secrets as parameters", method: "POST", path: policiesPath,
			body: secretPolicy("p"), code: 422, wantErr: errNeedsGetOnKind,
		},
		bobStep{
			name: "add secrets as parameters to a policy", method: "PATCH", path: policiesPath + "/plain",
			body: `{"spec":{"paramKind":{"apiVersion":"v1","kind":"Secret"}}}`, code: 422, wantErr: errNeedsGetOnKind,
		},
	)
	api.mustSend(201, "POST", policiesPath, secretPolicy("p")) // as the administrator
	asBob(
		bobStep{
			name: "update a policy without a change of its parameters", method: "PATCH", path: policiesPath + "/p",
			body: `{"metadata":{"labels":{"a":"b"}}}`, code: 200,
		},
		bobStep{
			name: "bind a secret to a policy", method: "POST", path: bindingsPath,
			body: paramBinding("p", "p", secretS), code: 422, wantErr: errNeedsGetOnRef,
		},
		bobStep{
			name: "bind a secret to a policy that does not exist", method: "POST", path: bindingsPath,
			body: paramBinding("unknown", "unknown", secretS), code: 422, wantErr: errNeedsGetOnRef,
		},
	)

	// 2. With get on the secret default/s.
	api.mustSend(201, "POST", clusterRolesPath,
		`{"metadata":{"name":"one"},"rules":[{"apiGroups":[""],"resources":["secrets"],"resourceNames":["s"],"verbs":["get"]}]}`)
	api.mustSend(201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
		`{"metadata":{"name":"one"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"one"},"subjects":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]}`)
	asBob(
		bobStep{
			name: "bind the permitted secret", method: "POST", path: bindingsPath,
			body: paramBinding("p", "p", secretS), code: 201,
		},
		bobStep{
			name: "bind secrets by a selector", method: "POST", path: bindingsPath,
			body: paramBinding("selected", "p", allSecrets), code: 422, wantErr: errNeedsListOnRef,
		},
		bobStep{
			name: "change the namespace of the bound secret", method: "PATCH", path: bindingsPath + "/p",
			body: `{"spec":{"paramRef":{"namespace":"kube-system"}}}`, code: 422, wantErr: errNeedsGetOnRef,
		},
		bobStep{
			name: "change the name of the bound secret", method: "PATCH", path: bindingsPath + "/p",
			body: `{"spec":{"paramRef":{"name":"other"}}}`, code: 422, wantErr: errNeedsGetOnRef,
		},
		bobStep{
			name: "create another policy with secrets as parameters", method: "POST", path: policiesPath,
			body: secretPolicy("q"), code: 422, wantErr: errNeedsGetOnKind,
		},
	)

	// 3. With get on all secrets.
	api.grantToBob(t, "secrets", `[""]`, `["secrets"]`, `["get"]`)
	asBob(
		bobStep{
			name: "create a policy with permitted parameters", method: "POST", path: policiesPath,
			body: secretPolicy("q"), code: 201,
		},
		bobStep{
			name: "bind another permitted secret", method: "PATCH", path: bindingsPath + "/p",
			body: `{"spec":{"paramRef":{"name":"other"}}}`, code: 200,
		},
	)
}
