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
	// client-go tells of every connection that is lost.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	flag.Parse()
	// Connections to what is cut off are found out soon.
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if err := os.Setenv(name, "1"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if imagesMade.Load() {
		if err := removeImages(); err != nil {
			fmt.Fprintln(os.Stderr, "clean up:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// The forms of the tests: brief, which takes three minutes, is for every change; more
// has faults of every kind and parts that are swapped; long has every fault of every
// container, and an upgrade.
const (
	brief = iota
	more
	long
)

func form(t *testing.T) int {
	t.Helper()
	switch s := os.Getenv(formEnv); s {
	case "":
		return brief
	case "more":
		return more
	case "long":
		return long
	default:
		t.Fatalf("%s=%s is neither more nor long", formEnv, s)
		return brief
	}
}

// needForm skips a test in forms before this one.
func needForm(t *testing.T, least int) {
	t.Helper()
	if form(t) < least {
		t.Skipf("%s=%q leaves it out", formEnv, os.Getenv(formEnv))
	}
}

func seed(t *testing.T) uint64 {
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

// TestComposition looks at what runs, and then breaks it.
func TestComposition(t *testing.T) {
	c := start(t, "suite")
	t.Run("kubectl", func(t *testing.T) { usable(t, c) })
	t.Run("images", func(t *testing.T) { checkImages(t) })
	t.Run("containers", func(t *testing.T) { checkContainers(t, c) })
	t.Run("secrets", func(t *testing.T) { checkSecrets(t, c) })
	t.Run("networks", func(t *testing.T) { checkNetworks(t, c) })
	t.Run("console", func(t *testing.T) { checkConsole(t, c) })
	t.Run("faults", func(t *testing.T) {
		faults, held := briefly(), 2*time.Second
		switch form(t) {
		case more:
			faults = ofEveryKind()
		case long:
			faults, held = thoroughly(), 5*time.Second
		}
		l := c.startLoad(t, seed(t))
		for _, f := range faults {
			l.suffer(f, held)
		}
		l.finish()
	})
}

// usable uses the kubeconfig that was written, through the balancer, and each
// authority behind it.
func usable(t *testing.T, c *composition) {
	cli := harness.CLIOf(t, c.state+"/kubeconfig")
	if out := cli.Run(t, "get", "namespaces", "-o", "name"); !strings.Contains(out, "namespace/kube-system") {
		t.Errorf("namespaces %s", out)
	}
	cli.Run(t, "create", "serviceaccount", "reader", "-n", "default")
	cli.Run(t, "create", "rolebinding", "readers", "--clusterrole=view", "--serviceaccount=default:reader", "-n", "default")
	token := strings.TrimSpace(cli.Run(t, "create", "token", "reader", "-n", "default"))
	as := func(args ...string) harness.Result {
		return cli.Try(t, "", append([]string{"--kubeconfig=" + os.DevNull, "--server=https://127.0.0.1:" + strconv.Itoa(c.port),
			"--certificate-authority=" + c.certificate("ca", "serving-ca.crt"), "--token=" + token, "-n", "default"}, args...)...)
	}
	harness.Eventually(t, patience, "a service account reads", func() error {
		return as("get", "pods").Err
	})
	if r := as("get", "secrets"); r.Err == nil || !strings.Contains(r.Stderr, "Forbidden") {
		t.Errorf("a service account reads secrets: %v %s", r.Err, r.Stderr)
	}
}

func removeImages() error {
	return removeAll([]string{"image", "ls", "--format={{.Repository}}:{{.Tag}}", "--filter=reference=" + imagesPrefix + "/*:" + tag() + "*"}, []string{"image", "rm", "--force"})
}
