package containers

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"binnacle/e2e/harness"
)

const seedEnv = "BINNACLE_ROBUSTNESS_SEED"

func TestMain(m *testing.M) {
	// client-go logs every lost connection.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flag.Parse()
	// Detect broken connections within seconds.
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if err := os.Setenv(name, "1"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if imagesBuilt.Load() {
		if err := removeImages(); err != nil {
			fmt.Fprintln(os.Stderr, "clean up:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// The forms of the tests. brief takes three minutes and is for every change. more adds faults of
// every kind and swapped parts. long adds every fault of every container, and an upgrade.
const (
	brief = iota
	more
	long
)

// selectedForm returns the form of the tests in the environment.
func selectedForm(t *testing.T) int {
	t.Helper()
	switch s := os.Getenv(formEnv); s {
	case "":
		return brief
	case "more":
		return more
	case "long":
		return long
	default:
		t.Fatalf("%s=%q: want more or long", formEnv, s)
		return brief
	}
}

// requireForm skips a test in shorter forms.
func requireForm(t *testing.T, least int) {
	t.Helper()
	if selectedForm(t) < least {
		t.Skipf("not part of %s=%q", formEnv, os.Getenv(formEnv))
	}
}

// randomSeed returns the seed in the environment, or a random one, and logs it.
func randomSeed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("%s=%d", seedEnv, n)
	return n
}

// TestComposition checks a running suite and then injects faults.
func TestComposition(t *testing.T) {
	composition := startComposition(t, "suite")
	t.Run("kubectl", func(t *testing.T) { checkAccess(t, composition) })
	t.Run("images", func(t *testing.T) { checkImages(t) })
	t.Run("containers", func(t *testing.T) { checkContainers(t, composition) })
	t.Run("secrets", func(t *testing.T) { checkSecrets(t, composition) })
	t.Run("networks", func(t *testing.T) { checkNetworks(t, composition) })
	t.Run("console", func(t *testing.T) { checkConsole(t, composition) })
	t.Run("faults", func(t *testing.T) {
		faults, held := faultsOfBriefForm(), 2*time.Second
		switch selectedForm(t) {
		case more:
			faults = faultsOfMoreForm()
		case long:
			faults, held = faultsOfLongForm(), 5*time.Second
		}
		load := composition.startLoad(t, randomSeed(t))
		for _, f := range faults {
			load.injectFault(f, held)
		}
		load.stopAndCheck()
	})
}

// checkAccess checks that the kubeconfig that was written gives access through the balancer, and to
// each authority behind it.
func checkAccess(t *testing.T, c *composition) {
	cli := harness.CLIOf(t, c.state+"/kubeconfig")
	if names := cli.Run(t, "get", "namespaces", "-o", "name"); !strings.Contains(names, "namespace/kube-system") {
		t.Errorf("got namespaces %s, want kube-system among them", names)
	}
	cli.Run(t, "create", "serviceaccount", "reader", "-n", "default")
	cli.Run(t, "create", "rolebinding", "readers", "--clusterrole=view", "--serviceaccount=default:reader", "-n", "default")
	token := strings.TrimSpace(cli.Run(t, "create", "token", "reader", "-n", "default"))
	executeAsReader := func(args ...string) harness.Result {
		return cli.Execute(t, "",
			append([]string{"--kubeconfig=" + os.DevNull, "--server=https://127.0.0.1:" + strconv.Itoa(c.port),
				"--certificate-authority=" + c.certificate("ca", "serving-ca.crt"), "--token=" + token, "-n",
				"default"}, args...)...)
	}
	harness.Eventually(t, waitTimeout, "a service account to read pods", func() error {
		return executeAsReader("get", "pods").Err
	})
	if result := executeAsReader("get", "secrets"); result.Err == nil || !strings.Contains(result.Stderr, "Forbidden") {
		t.Errorf("service account read secrets: got %v %s, want Forbidden", result.Err, result.Stderr)
	}
}

// removeImages removes the images of this process.
func removeImages() error {
	return removeUntilGone([]string{"image", "ls", "--format={{.Repository}}:{{.Tag}}",
		"--filter=reference=" + imagesPrefix + "/*:" + imageTag() + "*"}, []string{"image", "rm", "--force"})
}
