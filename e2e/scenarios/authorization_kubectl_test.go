package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// newCLIForUser returns a kubectl with a user's certificate.
func newCLIForUser(t *testing.T, s *harness.Server, user string, groups ...string) *harness.CLI {
	t.Helper()
	return harness.CLIOf(t, s.Kubeconfig(s.PKI.Client(user, groups...)))
}

// TestKubectlAuthReviewsAndReconciles tests the kubectl auth commands.
func TestKubectlAuthReviewsAndReconciles(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	admin, alice := harness.NewCLI(t, server), newCLIForUser(t, server, "alice", "dev")
	admin.Run(t, "create", "namespace", "one")
	admin.Run(t, "create", "rolebinding", "viewers", "--clusterrole=view", "--group=dev", "-n", "one")
	admin.Run(t, "create", "role", "restarts", "--verb=patch", "--resource=deployments.apps", "--resource-name=web", "-n", "one")
	admin.Run(t, "create", "rolebinding", "restarts", "--role=restarts", "--user=alice", "-n", "one")
	harness.Eventually(t, patience, "pods", func() error { return alice.Execute(t, "", "get", "pods", "-n", "one").Err })

	expectParts(t, "whoami", alice.Run(t, "auth", "whoami"), "alice", "[dev system:authenticated]")
	for question, yes := range map[string]bool{
		"list pods -n one":                    true,
		"list pods":                           false,
		"list pods -A":                        false,
		"get pods/log -n one":                 true,
		"delete pods -n one":                  false,
		"patch deployments.apps/web -n one":   true,
		"patch deployments.apps/other -n one": false,
		"get /version":                        true,
		"get /metrics":                        false,
		"get secrets -n one":                  false, "create selfsubjectaccessreviews.authorization.k8s.io": true,
	} {
		r := alice.Execute(t, "", append([]string{"auth", "can-i"}, strings.Fields(question)...)...)
		if want := map[bool]string{true: "yes", false: "no"}[yes]; strings.TrimSpace(r.Stdout) != want || (r.Err == nil) != yes {
			t.Errorf("can-i %s: got %q, %v, want %s", question, r.Stdout, r.Err, want)
		}
	}
	expectParts(t, "can-i for another",
		admin.Run(t, "auth", "can-i", "list", "pods", "-n", "one", "--as=bob", "--as-group=dev"), "yes")
	expectParts(t, "can-i --list", alice.Run(t, "auth", "can-i", "--list", "-n", "one"),
		"Resources", "selfsubjectaccessreviews.authorization.k8s.io", "pods/log", "deployments.apps", "[web]",
		"[patch]", "[/healthz]")
	checkReconcile(t, admin)
}

// policyRules returns a role and its binding for a namespace.
func policyRules(verbs, subjects string) string {
	return fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reconciled, namespace: one}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [%s]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reconciled, namespace: one}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reconciled}
subjects: [%s]
`, verbs, subjects)
}

// checkReconcile checks that auth reconcile adds missing rules, removes extra ones on request and
// recreates a binding whose role has changed.
func checkReconcile(t *testing.T, admin *harness.CLI) {
	t.Helper()
	user := func(name string) string {
		return "{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + name + "}"
	}
	reconcile := func(content string, flags ...string) string {
		t.Helper()
		return admin.RunWith(t, content, append([]string{"auth", "reconcile", "-f", "-"}, flags...)...)
	}
	state := func() string {
		t.Helper()
		return admin.Run(t, "get", "role/reconciled", "rolebinding/reconciled", "-n", "one",
			"-o", "jsonpath={.items[0].rules[*].verbs} {.items[1].subjects[*].name} {.items[1].roleRef.kind}/{.items[1].roleRef.name}")
	}
	expect := func(want string) {
		t.Helper()
		if got := state(); got != want {
			t.Errorf("after reconcile: got %s, want %s", got, want)
		}
	}
	expectParts(t, "reconcile", reconcile(policyRules("get", user("ann"))),
		"role.rbac.authorization.k8s.io/reconciled reconciled", "rolebinding.rbac.authorization.k8s.io/reconciled reconciled")
	expect(`["get"] ann Role/reconciled`)
	reconcile(policyRules("list", user("ben")))
	expect(`["get"] ["list"] ann ben Role/reconciled`)
	reconcile(policyRules("list", user("ben")), "--remove-extra-permissions", "--remove-extra-subjects")
	expect(`["list"] ben Role/reconciled`)
	other := strings.Replace(policyRules("list", user("ben")), "kind: Role, name: reconciled}",
		"kind: ClusterRole, name: view}", 1)
	reconcile(other)
	expect(`["list"] ben ClusterRole/view`)
}

// TestAccessWebhookReplacesAuthzWebhook replaces authz-webhook by the example, only by a
// kubeconfig.
func TestAccessWebhookReplacesAuthzWebhook(t *testing.T) {
	t.Parallel()
	address := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	server := harness.StartServer(t, harness.WithAccessWebhook(address))
	serving, rules := server.PKI.Serving("access-webhook"), filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(rules, []byte(`{"users": {"ada": ["*"]}, "groups": {"dev": ["get", "list", "watch"]}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	example := harness.NewProcess(t, string(harness.AccessExample), harness.Binary(t, harness.AccessExample))
	example.Start("--address="+address, "--cert="+serving.CertFile, "--key="+serving.KeyFile,
		"--client-ca="+server.PKI.CA, "--rules="+rules)
	ada, dev := newCLIForUser(t, server, "ada"), newCLIForUser(t, server, "ben", "dev")
	harness.Eventually(t, patience, "ada to be allowed to write", func() error {
		return ada.Execute(t, "", "create", "configmap", "c", "-n", "default").Err
	})
	expectParts(t, "ben reads", dev.Run(t, "get", "configmaps", "-n", "default", "-o", "name"), "configmap/c")
	if r := dev.Execute(t, "", "delete", "configmap", "c", "-n", "default"); !strings.Contains(r.Stderr,
		"Forbidden") || !strings.Contains(r.Stderr, "no rule allows it") {
		t.Errorf("delete as ben: got %v %s, want Forbidden: no rule allows it", r.Err, r.Stderr)
	}
	// RBAC roles have no effect.
	admin := harness.NewCLI(t, server)
	admin.Run(t, "create", "rolebinding", "admins", "--clusterrole=cluster-admin", "--user=mallory", "-n", "default")
	if r := newCLIForUser(t, server, "mallory").Execute(t, "", "get", "configmaps", "-n",
		"default"); !strings.Contains(r.Stderr, "Forbidden") {
		t.Errorf("read as mallory: got %v %s, want Forbidden", r.Err, r.Stdout)
	}
}
