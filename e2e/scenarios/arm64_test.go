package scenarios

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"binnacle/e2e/harness"
)

// TestARM64 runs the API server with the embedded etcd as released for 64-bit ARM, in an emulator.
func TestARM64(t *testing.T) {
	const emulator = "qemu-aarch64-static"
	path, err := exec.LookPath(emulator)
	if err != nil {
		t.Skipf("no %s (qemu-user-static) to run programs for arm64: %v", emulator, err)
	}
	server := harness.StartServer(t, harness.Emulated(path, harness.EverythingFor(t, "arm64"), "apiserver"))
	cli := harness.NewCLI(t, server)
	var version struct{ Platform string }
	if err := json.Unmarshal([]byte(cli.Run(t, "get", "--raw", "/version")), &version); err != nil ||
		version.Platform != "linux/arm64" {
		t.Errorf("got platform %q, %v, want linux/arm64", version.Platform, err)
	}
	cli.Run(t, "create", "configmap", "ship", "--from-literal=bearing=north")
	cli.Run(t, "patch", "configmap", "ship", "--patch", `{"data":{"bearing":"south"}}`)
	if got := cli.Run(t, "get", "configmap", "ship", "-o", "jsonpath={.data.bearing}"); got != "south" {
		t.Errorf("bearing: got %q, want \"south\"", got)
	}
	cli.Run(t, "apply", "--server-side", "-f", "testdata/arm64.yaml")
	if got := cli.Run(t, "get", "deployments,services", "-o", "name"); !strings.Contains(got,
		"deployment.apps/ship") || !strings.Contains(got, "service/ship") {
		t.Errorf("got %q, want deployment.apps/ship and service/ship", got)
	}
	server.Restart() // data must persist
	if got := cli.Run(t, "get", "configmap", "ship", "-o", "jsonpath={.data.bearing}"); got != "south" {
		t.Errorf("bearing after a restart: got %q, want \"south\"", got)
	}
	cli.Run(t, "delete", "configmap", "ship")
}
