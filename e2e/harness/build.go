package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// BinDirEnv names a folder of finished binaries, which are then used instead of
// building them.
const BinDirEnv = "BINNACLE_BIN_DIR"

// kubectlVersion is what kubectl says about itself; the linker sets it.
const kubectlVersion = "v1.33.13"

// A Program is something that the harness can build and run.
type Program string

// The programs under test, and the stock ones that they are tested with.
const (
	APIServer       Program = "apiserver"
	AuthnWebhook    Program = "authn-webhook"
	AuthzWebhook    Program = "authz-webhook"
	TokenCleaner    Program = "tokencleaner"
	BootstrapSigner Program = "bootstrapsigner"
	Controllers     Program = "controllers"
	Console         Program = "console"
	Everything      Program = "binnacle" // all services in one
	Supervisor      Program = "local"    // of the whole suite on one machine
	Certificates    Program = "certs"    // makes those of a suite
	Images          Program = "images"
	Compose         Program = "compose"        // runs the suite in containers
	Balancer        Program = "balancer"       // spreads connections over instances there
	Helm            Program = "helm"           // renders charts
	AccessExample   Program = "access-webhook" // takes the place of authz-webhook
	TokenWebhook    Program = "token-webhook"  // takes the place of authn-webhook
	KubeletServer   Program = "kubelet"        // its containers are processes
	EtcdServer      Program = "etcd"
	NATSServer      Program = "nats-server"
	Kubectl         Program = "kubectl"
	H2Spec          Program = "h2spec"          // conformance of HTTP/2
	Extension       Program = "extension"       // server of aggregated APIs
	SampleServer    Program = "sampleapiserver" // Kubernetes' example of one
)

var built sync.Map // Program → func() (string, error)

// Binary returns the path of a program, which it builds first if it is not up
// to date.
func Binary(t testing.TB, p Program) string {
	t.Helper()
	build, _ := built.LoadOrStore(p, sync.OnceValues(func() (string, error) { return locate(p) }))
	path, err := build.(func() (string, error))()
	if err != nil {
		t.Fatalf("build %s: %v", p, err)
	}
	return path
}

func locate(p Program) (string, error) {
	if dir := os.Getenv(BinDirEnv); dir != "" {
		path := filepath.Join(dir, string(p))
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", BinDirEnv, err)
		}
		return path, nil
	}
	module, err := moduleDir()
	if err != nil {
		return "", err
	}
	project := filepath.Dir(module)
	out := filepath.Join(project, "bin", "e2e")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	// The test packages run side by side, in a process each.
	unlock, err := lockFile(filepath.Join(out, "."+string(p)+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(out, string(p))
	dir, source := project, "./services/"+string(p)
	flags := "-s -w" // as they are released, which images are weighed by
	switch p {
	case Everything:
		source = "./cmd/binnacle"
	case Supervisor:
		source = "./deploy/local"
	case Certificates:
		source = "./deploy/certs/cmd/certs"
	case Images, Compose, Balancer:
		source = "./deploy/" + string(p)
	case KubeletServer:
		source = "./services/apiserver/internal/proxy/kubeletproxy/kubelettest/cmd/kubelet"
	case AccessExample, TokenWebhook:
		source = "./deploy/examples/" + string(p)
	case Kubectl:
		const pkg = "k8s.io/component-base/version."
		flags += " -X " + pkg + "gitVersion=" + kubectlVersion + " -X " + pkg + "gitMajor=1 -X " + pkg + "gitMinor=33"
		dir, source = module, "./cmd/kubectl"
	case SampleServer, Helm:
		dir, source = filepath.Join(module, string(p)), "."
	case Extension:
		dir, source = module, "./aggregation/extension"
	case EtcdServer, NATSServer, H2Spec:
		dir, source = module, "./cmd/"+string(p)
	}
	// The go command leaves a file alone that is up to date.
	cmd := exec.Command("go", "build", "-o", path, "-ldflags="+flags, source)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as they are released
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", source, err, output)
	}
	return path, nil
}

// Project is the folder of the project.
func Project(t testing.TB) string {
	t.Helper()
	module, err := moduleDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(module)
}

// moduleDir returns the root of the e2e module, found from the working directory.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module binnacle/e2e\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the working directory is not in the e2e module")
		}
		dir = parent
	}
}
