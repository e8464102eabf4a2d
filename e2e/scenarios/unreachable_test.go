package scenarios

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// noEtcd is the URL of a port on which no process listens.
const noEtcd = "http://127.0.0.1:1"

// TestUnreachableEtcdIsNamed starts a server whose etcd does not respond. Anonymous probes and the
// log name etcd; other paths stay forbidden.
func TestUnreachableEtcdIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.Certificates),
		"--dir="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	key := filepath.Join(dir, "apiserver", "sa.key")
	port := harness.FreePort(t)
	process := harness.NewProcess(t, "apiserver", harness.Binary(t, harness.APIServer))
	process.Start("--etcd-servers="+noEtcd, "--authorization-mode=RBAC", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir="+dir, "--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+key)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // self-signed
	defer client.CloseIdleConnections()
	get := func(path string) (int, string, error) {
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d%s", port, path))
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	harness.Eventually(t, time.Minute, "/readyz names etcd", func() error {
		code, body, err := get("/readyz")
		if err == nil && (code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed")) {
			err = fmt.Errorf("%d: %s", code, body)
		}
		return err
	})
	for path, want := range map[string]int{
		"/livez/ping":        http.StatusOK,
		"/metrics":           http.StatusForbidden,
		"/readyz/../metrics": http.StatusNotFound,
	} {
		if code, body, err := get(path); err != nil || code != want {
			t.Errorf("GET %s: %d, want %d: %s, %v", path, code, want, body, err)
		}
	}
	harness.Eventually(t, time.Minute, "the log names etcd", func() error {
		if log := process.Log(); !strings.Contains(log, "etcd unreachable") || !strings.Contains(log, noEtcd) {
			return fmt.Errorf("log: %s", log)
		}
		return nil
	})
	file := filepath.Join(dir, "snapshot.db")
	out, err := exec.CommandContext(t.Context(), harness.Binary(t, harness.APIServer), "snapshot",
		"--endpoint="+noEtcd, "--to="+file).CombinedOutput()
	if err == nil || !strings.Contains(string(out), noEtcd) || !strings.Contains(string(out), "connection refused") {
		t.Errorf("snapshot: got %v, output %s, want the error %q: connection refused", err, out, noEtcd)
	}
}
