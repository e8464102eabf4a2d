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

// BinDirEnv names a folder of binaries to use instead of building them.
const BinDirEnv = "BINNACLE_BIN_DIR"

// kubectlVersion is the version that kubectl reports. The linker sets it.
const kubectlVersion = "v1.33.13"

// A Program is a binary that the harness can build and run.
type Program string

// The programs under test and the stock programs that they are tested with.
const (
	APIServer       Program = "apiserver"
	AuthnWebhook    Program = "authn-webhook"
	AuthzWebhook    Program = "authz-webhook"
	TokenCleaner    Program = "tokencleaner"
	BootstrapSigner Program = "bootstrapsigner"
	Controllers     Program = "controllers"
	Console         Program = "console"
	Everything      Program = "binnacle" // all services in one binary
	Certificates    Program = "certs"    // creates the certificates of a suite
	Images          Program = "images"
	Compose         Program = "compose"        // runs the suite in containers
	Balancer        Program = "balancer"       // spreads connections over instances in containers
	Helm            Program = "helm"           // renders charts
	AccessExample   Program = "access-webhook" // replaces authz-webhook
	TokenWebhook    Program = "token-webhook"  // replaces authn-webhook
	KubeletServer   Program = "kubelet"        // runs containers as processes
	EtcdServer      Program = "etcd"
	NATSServer      Program = "nats-server"
	Kubectl         Program = "kubectl"
	H2Spec          Program = "h2spec"          // HTTP/2 conformance
	Extension       Program = "extension"       // extension API server
	SampleServer    Program = "sampleapiserver" // Kubernetes' example of an extension API server
)

var binaryPaths sync.Map // Program → func() (string, error)

// Binary returns the path of a program. It builds the program first if it is not up to date.
func Binary(t testing.TB, program Program) string {
	t.Helper()
	build, _ := binaryPaths.LoadOrStore(program, sync.OnceValues(func() (string, error) { return buildBinary(program) }))
	path, err := build.(func() (string, error))()
	if err != nil {
		t.Fatalf("build %s: %v", program, err)
	}
	return path
}

// buildBinary builds a program and returns its path. If BinDirEnv names a folder, it returns the
// path of the binary in that folder.
func buildBinary(program Program) (string, error) {
	if dir := os.Getenv(BinDirEnv); dir != "" {
		path := filepath.Join(dir, string(program))
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", BinDirEnv, err)
		}
		return path, nil
	}

	// 1. Lock the binary. The test packages run concurrently in separate processes.
	module, err := moduleDir()
	if err != nil {
		return "", err
	}
	project := filepath.Dir(module)
	out := filepath.Join(project, "bin", "e2e")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(out, "."+string(program)+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()

	// 2. Find the module folder and the package of the program.
	path := filepath.Join(out, string(program))
	dir, source := project, "./services/"+string(program)
	flags := "-s -w" // as in releases; the tests of image sizes need this
	switch program {
	case Everything:
		source = "./cmd/binnacle"
	case Certificates:
		source = "./deploy/certs/cmd/certs"
	case Images, Compose, Balancer:
		source = "./deploy/" + string(program)
	case KubeletServer:
		source = "./services/apiserver/internal/proxy/kubeletproxy/kubelettest/cmd/kubelet"
	case AccessExample, TokenWebhook:
		source = "./deploy/examples/" + string(program)
	case Kubectl:
		const pkg = "k8s.io/component-base/version."
		flags += " -X " + pkg + "gitVersion=" + kubectlVersion + " -X " + pkg + "gitMajor=1 -X " + pkg + "gitMinor=33"
		dir, source = module, "./cmd/kubectl"
	case SampleServer, Helm:
		dir, source = filepath.Join(module, string(program)), "."
	case Extension:
		dir, source = module, "./aggregation/extension"
	case EtcdServer, NATSServer, H2Spec:
		dir, source = module, "./cmd/"+string(program)
	}

	// 3. Build. The go command does not rewrite a file that is up to date.
	cmd := exec.Command("go", "build", "-o", path, "-ldflags="+flags, source)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as in releases
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", source, err, output)
	}
	return path, nil
}

// Project returns the root folder of the project.
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
			return "", errors.New("working directory is not in the e2e module")
		}
		dir = parent
	}
}
