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
	asBob := func(code int, method, path, body, wantText string) {
		t.Helper()
		headers := []string{"Impersonate-User", "bob"}
		if method == "PATCH" {
			headers = append(headers, "Content-Type", "application/merge-patch+json")
		}
		if r := a.want(code, method, path, body, headers...); !strings.Contains(string(r.body), wantText) {
			t.Errorf("%s %s: got %s, want a body that contains %s", method, path, r.body, wantText)
		}
	}
	const secretKind = `"paramKind":{"apiVersion":"v1","kind":"Secret"},`
	const valid = `"validations":[{"expression":"true"}]`
	const errNeedsGetOnAll = `is invalid: spec.paramKind: Forbidden: user \u0026{bob  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`
	const errNeedsGetOnReferenced = `is invalid: spec.paramRef: Forbidden: user \u0026{bob  [system:authenticated] map[]} does not have \"get\" permission on the object referenced by paramRef`
	denyWithParam := func(namespace, name string) string {
		return fmt.Sprintf(`%s,"paramRef":{"name":%q,"namespace":%q,"parameterNotFoundAction":"Allow"}`, denies, name, namespace)
	}

	// 1. Bob may write policies and bindings without parameters.
	asBob(201, "POST", policiesPath, admissionPolicy("plain", "", "configmaps", valid), "")
	asBob(201, "POST", bindingsPath, policyBinding("plain", denies), "")

	// 2. A policy whose parameters are Secrets needs "get" on all of them. Other changes do not.
	asBob(422, "POST", policiesPath, admissionPolicy("p", "", "configmaps", secretKind+valid), errNeedsGetOnAll)
	asBob(422, "PATCH", policiesPath+"/plain", `{"spec":{`+strings.TrimSuffix(secretKind, ",")+`}}`, errNeedsGetOnAll)
	a.want(201, "POST", policiesPath, admissionPolicy("p", "", "configmaps", secretKind+valid))
	asBob(200, "PATCH", policiesPath+"/p", `{"metadata":{"labels":{"a":"b"}}}`, "")

	// 3. A binding needs "get" on the Secret that it references, even for an unknown policy.
	asBob(422, "POST", bindingsPath, policyBinding("p", denyWithParam("default", "s")), errNeedsGetOnReferenced)
	asBob(422, "POST", bindingsPath, policyBinding("unknown", denyWithParam("default", "s")), errNeedsGetOnReferenced)
	a.want(201, "POST", roles,
		`{"metadata":{"name":"one"},"rules":[{"apiGroups":[""],"resources":["secrets"],"resourceNames":["s"],"verbs":["get"]}]}`)
	a.want(201, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
		`{"metadata":{"name":"one"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"one"},"subjects":[{"kind":"User","name":"bob","apiGroup":"rbac.authorization.k8s.io"}]}`)
	asBob(201, "POST", bindingsPath, policyBinding("p", denyWithParam("default", "s")), "")

	// 4. A binding with a selector needs "list", and another reference needs "get" on that Secret.
	const denyWithSelector = denies + `,"paramRef":{"selector":{},"namespace":"default","parameterNotFoundAction":"Allow"}`
	bindingWithSelector := strings.Replace(policyBinding("p", denyWithSelector), `"p"`, `"many"`, 1) // its own name, the policy p
	errNeedsListOnSelected := strings.Replace(errNeedsGetOnReferenced, "get", "list", 1)
	asBob(422, "POST", bindingsPath, bindingWithSelector, errNeedsListOnSelected)
	asBob(422, "PATCH", bindingsPath+"/p", `{"spec":{"paramRef":{"namespace":"kube-system"}}}`, errNeedsGetOnReferenced)
	asBob(422, "PATCH", bindingsPath+"/p", `{"spec":{"paramRef":{"name":"other"}}}`, errNeedsGetOnReferenced)

	// 5. With "get" on all Secrets, Bob may write the policy and any reference.
	asBob(422, "POST", policiesPath, admissionPolicy("q", "", "configmaps", secretKind+valid), errNeedsGetOnAll)
	grant("secrets", "", `"secrets"`, `"get"`)
	asBob(201, "POST", policiesPath, admissionPolicy("q", "", "configmaps", secretKind+valid), "")
	asBob(200, "PATCH", bindingsPath+"/p", `{"spec":{"paramRef":{"name":"other"}}}`, "")
}
