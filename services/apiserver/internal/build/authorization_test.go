package build

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/config"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1"

// withRBAC enables the authorizers Node and RBAC.
func withRBAC(options *config.Options) { options.Authorization.Modes = []string{"Node", "RBAC"} }

// asUser returns the headers that impersonate a user, for testServer.send.
func asUser(user string, groups ...string) []string {
	header := []string{"Impersonate-User", user}
	for _, group := range groups {
		header = append(header, "Impersonate-Group", group)
	}
	return header
}

// role returns a cluster role with rules, and with a label if labels has a key and a value.
func role(name, rules string, labels ...string) string {
	labelsField := ""
	if len(labels) == 2 {
		labelsField = fmt.Sprintf(`,"labels":{%q:%q}`, labels[0], labels[1])
	}
	return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q%s},"rules":[%s]}`,
		name, labelsField, rules)
}

// bindingOf returns a role binding of a user to a role of a kind.
func bindingOf(name, kind, role, user string) string {
	return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},"subjects":[{"kind":"User","name":%q}]}`,
		name, kind, role, user)
}

const readsPods = `{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}`

// TestBootstrapPolicyExistsWhenReady checks that the default roles and bindings exist and apply as soon
// as the server is ready.
func TestBootstrapPolicyExistsWhenReady(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	for resource, want := range map[string]int{"clusterroles": 66, "clusterrolebindings": 47, "roles": 7, "rolebindings": 7} {
		items, _ := api.get(rbacPath + "/" + resource).field("items").([]any)
		if len(items) != want {
			t.Errorf("got %d default %s, want %d", len(items), resource, want)
		}
	}
	api.mustSend(200, "GET", "/apis", "", asUser("alice")...)
	api.mustSend(200, "GET", "/version", "", asUser("system:anonymous", "system:unauthenticated")...)
	api.mustSend(403, "GET", "/apis", "", asUser("system:anonymous", "system:unauthenticated")...)
	api.mustSend(403, "GET", "/api/v1/pods", "", asUser("alice")...)
	api.mustSend(200, "GET", "/api/v1/services", "", asUser("system:kube-scheduler")...)
	api.mustSend(201, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/api","verb":"get"}}}`,
		asUser("alice")...)
	if rules, _ := api.get(rbacPath + "/clusterroles/admin").field("rules").([]any); len(rules) < 20 {
		t.Errorf("aggregated role admin: got %d rules, want at least 20", len(rules))
	}
}

// TestRBACChangesApplyAtOnce checks that creating and deleting a binding grants and revokes access,
// and that invalid bindings are rejected.
func TestRBACChangesApplyAtOnce(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("reader", readsPods))
	const bindings, pods = rbacPath + "/namespaces/default/rolebindings", "/api/v1/namespaces/default/pods"
	for range 10 {
		api.mustSend(201, "POST", bindings, bindingOf("b", "ClusterRole", "reader", "alice"))
		api.waitUntil("allowed", func() bool { return api.send("GET", pods, "", asUser("alice")...).code == 200 })
		api.mustSend(200, "DELETE", bindings+"/b", "")
		api.waitUntil("rejected", func() bool { return api.send("GET", pods, "", asUser("alice")...).code == 403 })
	}
	rejected := api.mustSend(422, "POST", bindings, strings.Replace(bindingOf("c", "ClusterRole", "reader", "alice"),
		`"kind":"User"`, `"kind":"Robot"`, 1))
	if text := fmt.Sprint(rejected.field("message")); !strings.Contains(text,
		`subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`) {
		t.Errorf("got message %s, want the kind Robot rejected with the supported ones", text)
	}
	api.mustSend(201, "POST", bindings, bindingOf("c", "ClusterRole", "reader", "alice"))
	changed := api.mustSend(422, "PUT", bindings+"/c", bindingOf("c", "ClusterRole", "view", "alice"))
	if text := fmt.Sprint(changed.field("message")); !strings.Contains(text,
		`roleRef: Invalid value: rbac.RoleRef{APIGroup:"rbac.authorization.k8s.io", Kind:"ClusterRole", Name:"view"}: cannot change roleRef`) {
		t.Errorf("got message %s, want the error that roleRef cannot change", text)
	}
}

// TestAggregatedRolesAreUpdated checks that an aggregated role follows the roles that it selects.
func TestAggregatedRolesAreUpdated(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	total := strings.Replace(role("total", ""), `"rules":[]`,
		`"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"to":"total"}}]}`, 1)
	api.mustSend(201, "POST", rbacPath+"/clusterroles", total)
	count := func(want int) {
		t.Helper()
		api.waitUntil(fmt.Sprint(want, " rules"), func() bool {
			rules, _ := api.get(rbacPath + "/clusterroles/total").field("rules").([]any)
			return len(rules) == want
		})
	}
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("one", readsPods, "to", "total"))
	count(1)
	api.mustSend(201, "POST", rbacPath+"/clusterroles",
		role("two", `{"nonResourceURLs":["/x"],"verbs":["get"]},`+readsPods, "to", "total"))
	count(2)
	api.mustSend(200, "DELETE", rbacPath+"/clusterroles/two", "")
	count(1)
	api.mustSend(200, "DELETE", rbacPath+"/clusterroles/one", "")
	count(0)
}

// TestAggregatedRolesWithUnusualNamesAreUpdated checks that the aggregated rules are written to the right
// role, whatever its name looks like in a path.
func TestAggregatedRolesWithUnusualNamesAreUpdated(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	const roles = rbacPath + "/clusterroles"
	from := func(name, label string) string {
		return strings.Replace(role(name, ""), `"rules":[]`,
			`"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"to":"`+label+`"}}]}`, 1)
	}
	rules := func(path string) string { return fmt.Sprint(api.get(roles + "/" + path).field("rules")) }
	api.mustSend(201, "POST", roles, from("victim", "good"))
	before := api.get(roles + "/victim").resourceVersion()
	api.mustSend(201, "POST", roles, role("more", `{"nonResourceURLs":["/evil"],"verbs":["get"]}`, "to", "evil"))
	for _, odd := range []struct{ name, path string }{
		{name: "victim?x", path: "victim%3Fx"},
		{name: "victim#x", path: "victim%23x"},
		{name: "victim x", path: "victim%20x"},
	} {
		api.mustSend(201, "POST", roles, from(odd.name, "evil"))
		api.waitUntil(odd.name+" filled", func() bool { return strings.Contains(rules(odd.path), "/evil") })
	}
	if after := api.get(roles + "/victim"); after.resourceVersion() != before {
		t.Errorf("got another role written: %s, want version %s", after.body, before)
	}
}

// TestBootstrapPolicyIsReconciledAtStart checks that a start restores missing default permissions,
// except in objects that opted out of updates.
func TestBootstrapPolicyIsReconciledAtStart(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	dir := t.TempDir()
	configure := func(options *config.Options) {
		withRBAC(options)
		options.Etcd.Backend, options.Etcd.DataDir = config.BackendEtcd, dir
	}
	t.Run("first", func(t *testing.T) {
		api := startServer(t, configure)
		patch := func(path, body string) {
			t.Helper()
			api.mustSend(200, "PATCH", rbacPath+path, body, "Content-Type", "application/merge-patch+json")
		}
		patch("/clusterroles/system:discovery", `{"rules":[{"nonResourceURLs":["/own"],"verbs":["get"]}],"metadata":{"labels":null}}`)
		patch("/clusterrolebindings/system:basic-user", `{"subjects":null}`)
		// As an administrator left it in a version without system:public-info-viewer.
		patch("/clusterrolebindings/system:discovery",
			`{"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}],
			"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false","note":"narrowed"}}}`)
		api.mustSend(200, "DELETE", rbacPath+"/clusterrolebindings/system:public-info-viewer", "")
		patch("/clusterroles/system:basic-user",
			`{"rules":null,"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}}}`)
		patch("/clusterroles/view", `{"aggregationRule":null,"rules":null}`)
		api.mustSend(200, "DELETE", rbacPath+"/namespaces/kube-public/roles/system:controller:bootstrap-signer", "")
		api.mustSend(200, "DELETE", rbacPath+"/clusterrolebindings/system:monitoring", "")
		other := strings.Replace(strings.Replace(bindingOf("system:monitoring", "ClusterRole", "view", "x"),
			"RoleBinding", "ClusterRoleBinding", 1), `"kind":"User","name":"x"`, `"kind":"Group","name":"mine"`, 1)
		api.mustSend(201, "POST", rbacPath+"/clusterrolebindings", other)
	})
	api := startServer(t, configure)
	rules := func(path string) int {
		value, _ := api.get(rbacPath + path).field("rules").([]any)
		return len(value)
	}
	discovery := fmt.Sprint(api.get(rbacPath + "/clusterroles/system:discovery").object())
	for _, want := range []string{"/own", "/openapi", "rbac-defaults"} {
		if !strings.Contains(discovery, want) {
			t.Errorf("system:discovery: got %s, want it to contain %s", discovery, want)
		}
	}
	subjects := fmt.Sprint(api.get(rbacPath + "/clusterrolebindings/system:basic-user").field("subjects"))
	if !strings.Contains(subjects, "system:authenticated") {
		t.Errorf("system:basic-user: got subjects %s, want system:authenticated among them", subjects)
	}
	info := api.get(rbacPath + "/clusterrolebindings/system:public-info-viewer")
	if subjects := fmt.Sprint(info.field("subjects")); strings.Contains(subjects, "unauthenticated") ||
		!strings.Contains(subjects, "system:authenticated") {
		t.Errorf("system:public-info-viewer: got subjects %s, want system:authenticated, not system:unauthenticated", subjects)
	}
	if note := info.field("metadata", "annotations", "note"); note != "narrowed" {
		t.Errorf("system:public-info-viewer: got annotation %v, want that of system:discovery, narrowed", note)
	}
	if got := rules("/clusterroles/system:basic-user"); got != 0 {
		t.Errorf("role with autoupdate=false: got %d rules, want it unchanged, without rules", got)
	}
	api.mustSend(200, "GET", rbacPath+"/namespaces/kube-public/roles/system:controller:bootstrap-signer", "")
	api.waitUntil("view is aggregated", func() bool { return rules("/clusterroles/view") > 5 })
	got := fmt.Sprint(api.get(rbacPath+"/clusterrolebindings/system:monitoring").field("roleRef", "name"))
	if got != "system:monitoring" {
		t.Errorf("binding system:monitoring: got role %s, want system:monitoring", got)
	}
}

// TestAccessReviewsReportRBACDecisions checks the answers of access reviews and rules reviews for users with RBAC
// rules.
func TestAccessReviewsReportRBACDecisions(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("reader", readsPods))
	api.mustSend(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf("b", "ClusterRole", "reader", "alice"))
	api.mustSend(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf("gone", "Role", "gone", "alice"))
	api.waitUntil("bound", func() bool {
		return api.send("GET", "/api/v1/namespaces/default/pods", "", asUser("alice")...).code == 200
	})
	const reviews = "/apis/authorization.k8s.io/v1"

	// 1. A rules review lists the rules of the user and the roles that are missing.
	rules := api.mustSend(201, "POST", reviews+"/selfsubjectrulesreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"default"}}`,
		asUser("alice")...)
	text := fmt.Sprint(rules.field("status"))
	for _, want := range []string{
		"resources:[pods]", "selfsubjectrulesreviews", "nonResourceURLs:", "incomplete:false",
		`role.rbac.authorization.k8s.io "gone" not found`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got rules %s, want them to contain %s", text, want)
		}
	}
	none := api.mustSend(400, "POST", reviews+"/selfsubjectrulesreviews",
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{}}`, asUser("alice")...)
	if none.field("message") != "no namespace on request" {
		t.Errorf("got message %v, want %q", none.field("message"), "no namespace on request")
	}

	// 2. An access review evaluates selectors, and reports those that it cannot parse.
	review := func(attrs string) apiResponse {
		return api.send("POST", reviews+"/subjectaccessreviews",
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"alice","resourceAttributes":{"namespace":"default","verb":"list","resource":"pods"`+
				attrs+`}}}`)
	}
	for attrs, want := range map[string]string{
		``: `map[allowed:true reason:RBAC: allowed by RoleBinding "b/default" of ClusterRole "reader" to User "alice"]`,
		`,"labelSelector":{"rawSelector":"a=b"},"fieldSelector":{"rawSelector":"x=y"}`:                                   `map[allowed:true reason:`,
		`,"labelSelector":{"rawSelector":"&"},"fieldSelector":{"rawSelector":"a in b"}`:                                  `evaluationError:spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error`,
		`,"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"a","operator":"Exists"}]}`: `evaluationError:spec.resourceAttributes.fieldSelector partially ignored due to parse error`,
	} {
		if r := review(attrs); r.code != 201 || !strings.Contains(fmt.Sprint(r.field("status")), want) {
			t.Errorf("%s: got %d %v, want 201 and a status that contains %q", attrs, r.code, r.field("status"), want)
		}
	}

	// 3. An invalid selector is rejected.
	for attrs, want := range map[string]string{
		`,"labelSelector":{}`: "spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
		`,"fieldSelector":{"rawSelector":"a=b","requirements":[{"key":"a","operator":"In","values":["b"]}]}`: "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements",
		`,"fieldSelector":{"requirements":[{"operator":"In"}]}`:                                              "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, spec.resourceAttributes.fieldSelector.requirements[0].values: Required value",
		`,"fieldSelector":{"requirements":[{"key":"a","operator":"Exists","values":["b"]}]}`:                 "spec.resourceAttributes.fieldSelector.requirements[0].values: Forbidden",
	} {
		if r := review(attrs); r.code != 422 || !strings.Contains(fmt.Sprint(r.field("message")), want) {
			t.Errorf("%s: got %d %v, want 422 and a message that contains %q", attrs, r.code, r.field("message"), want)
		}
	}
}

// TestPrivilegeEscalationIsRejected checks that a user can grant only permissions that the user
// has.
func TestPrivilegeEscalationIsRejected(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	api.mustSend(201, "POST", rbacPath+"/namespaces/default/rolebindings", bindingOf("admin", "ClusterRole", "admin", "carl"))
	api.waitUntil("bound", func() bool {
		return api.send("GET", rbacPath+"/namespaces/default/roles", "", asUser("carl")...).code == 200
	})
	response := api.mustSend(403, "POST", rbacPath+"/namespaces/default/rolebindings",
		bindingOf("x", "ClusterRole", "cluster-admin", "carl"), asUser("carl")...)
	const forbidden = `rolebindings.rbac.authorization.k8s.io "x" is forbidden: user "carl" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:`
	if text := fmt.Sprint(response.field("message")); !strings.HasPrefix(text, forbidden) {
		t.Errorf("got message %s, want it to begin with %s", text, forbidden)
	}
	// What admin holds by aggregation comes a moment after what it has itself.
	api.waitUntil("granted", func() bool {
		return api.send("POST", rbacPath+"/namespaces/default/rolebindings",
			bindingOf("x", "ClusterRole", "view", "dan"), asUser("carl")...).code == 201
	})
}

// TestInvalidAuthorizationFlagsAreRejected checks which combinations of authorization flags and files the server
// accepts.
func TestInvalidAuthorizationFlagsAreRejected(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config")
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"
	for _, test := range []struct{ args, content, want string }{
		{args: "--authorization-config=" + file, content: head + "authorizers: [{type: RBAC, name: rbac}]"},
		{
			args: "--authorization-config=" + file + " --authorization-mode=RBAC",
			want: "--authorization-config cannot be combined with --authorization-mode",
		},
		{
			args: "--authorization-config=" + file + " --authorization-webhook-cache-authorized-ttl=5m0s",
			want: "cannot be combined with --authorization-webhook-cache-authorized-ttl",
		},
		{args: "--authorization-config=" + file, content: head, want: "at least one authorization mode"},
		{
			args:    "--authorization-config=" + file,
			content: head + "authorizers: [{type: ABAC, name: r}]",
			want:    "authorizers[0].type: Unsupported value",
		},
		{args: "--authorization-mode=Webhook", want: "go together"},
	} {
		if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		o := config.NewOptions()
		load := func(context.Context, *slog.Logger) error {
			_, _, err := loadAuthorization(&o.Authorization, nil)
			return err
		}
		args := append(strings.Fields(test.args), "--cert-dir="+t.TempDir())
		var stderr strings.Builder
		code := options.Main(t.Context(), config.Name, config.Short, o, load, args, io.Discard, &stderr)
		if wantOK := test.want == ""; (code == options.ExitOK) != wantOK {
			t.Errorf("%s: got exit code %d, want success: %t", test.args, code, wantOK)
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: got error output %s, want it to contain %q", test.args, &stderr, test.want)
		}
	}
}
