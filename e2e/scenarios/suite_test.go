package scenarios

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// suiteSize is the number of services that the supervisor starts, on consecutive ports.
const suiteSize = 7

// programFolder returns a folder with the binaries of the services and of more programs.
func programFolder(t *testing.T, more ...harness.Program) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range append(more, harness.APIServer, harness.AuthnWebhook, harness.AuthzWebhook,
		harness.TokenCleaner, harness.BootstrapSigner, harness.Controllers, harness.Console) {
		if err := os.Symlink(harness.Binary(t, p), filepath.Join(dir, string(p))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSuite runs all services together, as `make up` does, renews their certificates, and restarts
// them.
func TestSuite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	supervisor := harness.NewProcess(t, "binnacle", harness.Binary(t, harness.Everything))
	port := harness.FreePorts(t, suiteSize)
	supervisor.Start("up", "--dir="+dir, "--port="+strconv.Itoa(port))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	harness.Eventually(t, time.Minute, "the kubeconfig", func() error {
		_, err := os.Stat(kubeconfig)
		return err
	})
	cli := harness.CLIOf(t, kubeconfig)
	harness.Eventually(t, time.Minute, "a config map by kubectl", func() error {
		return cli.Execute(t, "", "create", "configmap", "c", "-n", "default").Err
	})
	expectParts(t, "namespaces", cli.Run(t, "get", "namespaces", "-o", "name"), "namespace/default",
		"namespace/kube-system", "namespace/kube-public")
	checkPermission(t, cli)
	checkIdentity(t, cli, filepath.Join(dir, "certs", "admin", "serving-ca.crt"))
	checkMonitoring(t, kubeconfig, port)
	checkRotation(t, cli, filepath.Join(dir, "certs"), port)
	if !supervisor.Running() {
		t.Fatal("the supervisor has exited")
	}
	if err := supervisor.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	// A restarted suite serves the objects that were written before.
	supervisor.Start("up", "--dir="+dir, "--port="+strconv.Itoa(harness.FreePorts(t, suiteSize)))
	harness.Eventually(t, time.Minute, "the config map after a restart", func() error {
		return harness.CLIOf(t, kubeconfig).Execute(t, "", "get", "configmap", "c", "-n", "default").Err
	})
	if err := supervisor.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

// checkRotation renews all certificates while the services run. Each service must present its new
// certificate, and the services and kubectl must continue to reach each other.
func checkRotation(t *testing.T, cli *harness.CLI, certs string, first int) {
	t.Helper()
	serials := func() (out []string) {
		for port := first; port < first+suiteSize; port++ {
			conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, conn.ConnectionState().PeerCertificates[0].SerialNumber.String())
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
		return out
	}
	before := serials()
	if out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.Certificates), "--dir="+certs,
		"--renew").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	harness.Eventually(t, time.Minute, "the new certificate of every service", func() error {
		for i, serial := range serials() {
			if serial == before[i] {
				return fmt.Errorf("the service on port %d presents the former certificate", first+i)
			}
		}
		return nil
	})
	checkPermission(t, cli)
}

// checkPermission checks that authz-webhook allows a request while a role binding exists.
func checkPermission(t *testing.T, cli *harness.CLI) {
	t.Helper()
	const mallory = "--as=mallory"
	if r := cli.Execute(t, "", "get", "pods", mallory); r.Err == nil || !strings.Contains(r.Stderr,
		`User "mallory" cannot list resource "pods" in API group "" in the namespace "default"`) {
		t.Errorf("without a role: %v %s", r.Err, r.Stderr)
	}
	cli.Run(t, "create", "rolebinding", "viewers", "--clusterrole=view", "--user=mallory", "-n", "default")
	harness.Eventually(t, time.Minute, "a list of pods with the role binding", func() error {
		return cli.Execute(t, "", "get", "pods", mallory).Err
	})
	cli.Run(t, "delete", "rolebinding", "viewers", "-n", "default")
	harness.Eventually(t, time.Minute, "Forbidden without the role binding", func() error {
		if r := cli.Execute(t, "", "get", "pods", mallory); strings.Contains(r.Stderr, "Forbidden") {
			return nil
		}
		return errors.New("list of pods is allowed")
	})
}

// checkIdentity checks that a service account authenticates with a token that the API server signed
// and authn-webhook verifies.
func checkIdentity(t *testing.T, cli *harness.CLI, ca string) {
	t.Helper()
	cli.Run(t, "create", "serviceaccount", "robot", "-n", "default")
	token := strings.TrimSpace(cli.Run(t, "create", "token", "robot", "-n", "default"))
	server := cli.Run(t, "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	harness.Eventually(t, time.Minute, "authentication of the service account", func() error {
		result := cli.Execute(t, "", "--kubeconfig="+os.DevNull, "--server="+server, "--certificate-authority="+ca, "--token="+token,
			"auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		if result.Err == nil && result.Stdout != "system:serviceaccount:default:robot" {
			return fmt.Errorf("got user %q", result.Stdout)
		}
		return result.Err
	})
}
