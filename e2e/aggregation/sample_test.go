package aggregation

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// TestSampleServer runs Kubernetes' example of an extension server with the API server.
func TestSampleServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the first build of the server takes minutes")
	}
	binary := harness.Binary(t, harness.SampleServer)
	suite := start(t, 1)
	const user = `"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"wardle"}]`
	const group = "/apis/rbac.authorization.k8s.io/v1/"
	suite.mustRequest("POST", group+"clusterroles", `{"metadata":{"name":"wardle"},"rules":[
		{"apiGroups":[""],"resources":["namespaces"],"verbs":["get","watch","list"]},
		{"apiGroups":["admissionregistration.k8s.io"],"resources":["*"],"verbs":["get","watch","list"]},
		{"apiGroups":["flowcontrol.apiserver.k8s.io"],"resources":["*"],"verbs":["list","watch"]}]}`)
	suite.mustRequest("POST", group+"namespaces/kube-system/rolebindings",
		`{"metadata":{"name":"wardle"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"extension-apiserver-authentication-reader"},`+user+`}`)
	for _, role := range []string{"system:auth-delegator", "wardle"} {
		suite.mustRequest("POST", group+"clusterrolebindings",
			`{"metadata":{"name":"wardle-`+role+
				`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+role+`"},`+user+`}`)
	}
	port := harness.FreePort(t)
	cert := suite.pki.ServingFor("wardle", "api.default.svc")
	kubeconfig := suite.servers[0].Kubeconfig(suite.pki.Client("wardle"))
	server := harness.NewProcess(t, "sampleapiserver", binary)
	server.Start("--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--etcd-servers="+harness.StartEtcd(t).Endpoint,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--tls-cert-file="+cert.CertFile, "--tls-private-key-file="+cert.KeyFile)
	data, err := os.ReadFile(suite.pki.CA)
	if err != nil {
		t.Fatal(err)
	}
	suite.mustRequest("POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"api"},"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	suite.mustRequest("POST", apiServices,
		fmt.Sprintf(`{"metadata":{"name":"v1alpha1.wardle.example.com"},"spec":{"group":"wardle.example.com","version":"v1alpha1","groupPriorityMinimum":1000,"versionPriority":15,
		"caBundle":%q,"service":{"namespace":"default","name":"api","port":%d}}}`, base64.StdEncoding.EncodeToString(data), port))
	harness.Eventually(t, 90*time.Second, "available", func() error {
		return suite.checkOK(0, "/apis/wardle.example.com/v1alpha1/flunders")
	})

	kubectl := harness.NewCLI(t, suite.servers[0])
	harness.Eventually(t, 40*time.Second, "described", func() error {
		if out := kubectl.Run(t, "api-resources", "--api-group=wardle.example.com", "-o", "name"); !strings.Contains(out,
			"flunders.wardle.example.com") || !strings.Contains(out, "fischers.wardle.example.com") {
			return fmt.Errorf("api-resources: %s", out)
		}
		r := kubectl.Execute(t, "", "explain", "flunders.spec")
		if !strings.Contains(r.Stdout, "reference") {
			return fmt.Errorf("explain: %s%s", r.Stdout, r.Stderr)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := kubectl.Command(ctx, "", "get", "flunders", "--watch", "-o", "name")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	kubectl.RunWith(t, `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"reference":"b","referenceType":"Flunder"}}`, "create", "-f", "-")
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "flunder.wardle.example.com/a" {
		t.Errorf("watch: got %q, want \"flunder.wardle.example.com/a\"", lines.Text())
	}
	cancel()
	_ = watch.Wait()
	if out := kubectl.Run(t, "get", "flunders", "-l", "x=y", "-o", "jsonpath={.items[*].metadata.name}"); out != "a" {
		t.Errorf("get: %q, want \"a\"", out)
	}
	kubectl.RunWith(t, `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Fischer","metadata":{"name":"no-a"},"disallowedFlunders":["b"]}`, "create", "-f", "-")
	harness.Eventually(t, 20*time.Second, "its own admission", func() error {
		r := kubectl.Execute(t, `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":"b"}}`,
			"create", "--dry-run=server", "-f", "-")
		if !strings.Contains(r.Stderr, "this name may not be used") {
			return fmt.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		return nil
	})
	kubectl.Run(t, "delete", "flunders", "a")
}
