package containers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/e2e/harness"
)

// formEnv selects the form of the tests. It is unset for the brief form.
const formEnv = "BINNACLE_CONTAINERS"

// imageNames returns the names of all images: the suite's services, the balancer, etcd and NATS.
func imageNames() []string {
	return append(suiteServices(), "balancer", "etcd", "nats-server")
}

// suiteServices returns the suite's services. The brief form leaves out the console.
func suiteServices() []string {
	out := []string{"apiserver", "authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner", "controllers"}
	if os.Getenv(formEnv) != "" {
		out = append(out, consoleService)
	}
	return out
}

// composition is a suite in containers.
type composition struct {
	t            testing.TB
	project      string // also the tag of its images
	state        string // folder of certificates and data
	composeFile  string // compose file
	port         int
	composeEdits []string // pairs of old and new texts in the compose file

	addresses addresses
}

// buildImagesOnce builds the images once for all tests of this process.
var (
	buildImagesOnce = sync.OnceValue(func() error { imagesBuilt.Store(true); return buildImages(imageTag(), "") })
	imagesBuilt     atomic.Bool
)

// imageTag returns the tag of the images of this process.
func imageTag() string { return fmt.Sprintf("%s%d", projectPrefix, os.Getpid()) }

func imageOf(service string) string { return imagesPrefix + "/" + service + ":" + imageTag() }

// buildImages builds all programs and their images. If checkout is not empty, the suite's services
// come from it.
func buildImages(tag, checkout string) error {
	self, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	project := self
	if checkout != "" {
		project = checkout
	}
	bin := filepath.Join(project, "bin", "containers")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	run := func(dir, name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	build := []string{"build", "-tags=nomsgpack,grpcnotrace", "-ldflags=-s -w", "-o", bin + "/"} // as deploy/images does
	var packages []string
	for _, s := range suiteServices() {
		packages = append(packages, "./services/"+s)
	}
	return errors.Join(
		run(project, "go", append(slices.Clone(build), packages...)...),
		run(self, "go", append(slices.Clone(build), "./deploy/balancer")...),
		run(filepath.Join(self, "e2e"), "go", append(slices.Clone(build), "./cmd/etcd", "./cmd/nats-server")...),
		run(self, "go", "run", "./deploy/images", "--builder=docker", "--bin-dir="+bin, "--out="+filepath.Join(bin, "images"),
			"--prefix="+imagesPrefix, "--tag="+tag, "--service="+strings.Join(imageNames(), ",")),
	)
}

// startComposition starts a composition and waits until it is ready. changes are pairs of old and
// new texts in the compose file.
func startComposition(t *testing.T, name string, changes ...string) *composition {
	t.Helper()
	requireDocker(t)
	requireImages(t)
	return startCompositionWithTag(t, name, imageTag(), changes...)
}

// startCompositionWithTag does the same as startComposition, with existing images.
func startCompositionWithTag(t *testing.T, name, tag string, changes ...string) *composition {
	t.Helper()
	c := &composition{
		t:       t,
		project: fmt.Sprintf("%s%d-%s", projectPrefix, os.Getpid(), name),
		state:   t.TempDir(),
		port:    harness.FreePort(t),
	}
	// Containers run as another user, which must be able to read the state folder.
	if err := os.Chmod(c.state, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
		removeProject(t, c.project)
	})
	c.composeEdits = append(changes, "    - --cluster-id=binnacle\n",
		"    - --cluster-id=binnacle\n    - --feature-gates=WatchList=true\n    - --etcd-compaction-interval=0\n", // the recorder reads from the first revision
		// Only containers are killed, not the machine, and other tests share its disk.
		"    - --initial-cluster-token=binnacle\n", "    - --initial-cluster-token=binnacle\n    - --unsafe-no-fsync\n")
	c.writeComposeFile()
	for err := c.runCompose("up", "--tag="+tag); err != nil; err = c.runCompose("up", "--tag="+tag) {
		// Another process may take the port before the engine does.
		if !strings.Contains(err.Error(), "already allocated") && !strings.Contains(err.Error(), "already in use") {
			t.Fatal(err)
		}
		c.port = harness.FreePort(t)
	}
	return c
}

// writeComposeFile writes the compose file.
func (c *composition) writeComposeFile() {
	c.t.Helper()
	folder := filepath.Join(harness.Project(c.t), "deploy", "compose")
	text, err := os.ReadFile(filepath.Join(folder, "compose.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	// Relative paths in the file start at its folder. The first match is replaced, so
	// composeEdits take precedence.
	replace := slices.Concat(c.composeEdits,
		[]string{"- ../manifests/", "- " + filepath.Dir(folder) + "/manifests/", "- ./nats.conf", "- " + folder + "/nats.conf"})
	c.composeFile = filepath.Join(c.state, "compose.yaml")
	if err := os.WriteFile(c.composeFile, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// mustCompose runs a command of deploy/compose that must succeed.
func (c *composition) mustCompose(command string, more ...string) {
	c.t.Helper()
	if err := c.runCompose(command, more...); err != nil {
		c.t.Fatal(err)
	}
}

// runCompose runs a command of deploy/compose.
func (c *composition) runCompose(command string, more ...string) error {
	c.t.Helper()
	defer c.addresses.clear()
	args := append([]string{command, "--project=" + c.project, "--state=" + c.state, "--file=" + c.composeFile,
		"--images=" + imagesPrefix,
		"--tag=" + imageTag(), fmt.Sprintf("--port=%d", c.port), "--no-build", "--no-pull",
		"--timeout=" + (2 * waitTimeout).String()}, more...)
	cmd := exec.CommandContext(c.t.Context(), harness.Binary(c.t, harness.Compose), args...)
	cmd.Dir = harness.Project(c.t)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compose %s: %w\n%s", command, err, out)
	}
	return nil
}

// container returns the ID of the container of a service, running or not.
func (c *composition) container(service string) (string, error) {
	out, err := docker("ps", "--all", "--quiet", "--filter=label="+projectLabel+"="+c.project,
		"--filter=label="+serviceLabel+"="+service)
	if err != nil {
		return "", err
	}
	ids := strings.Fields(out)
	if len(ids) != 1 {
		return "", fmt.Errorf("got %d containers of %s, want 1", len(ids), service)
	}
	return ids[0], nil
}

// mustContainer returns the ID of the container of a service.
func (c *composition) mustContainer(service string) string {
	c.t.Helper()
	id, err := c.container(service)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

func (c *composition) networkName(name string) string { return c.project + "_" + name }

// shownWidth bounds the length of a log line in the output.
const shownWidth = 400

// showLogs logs the load of the machine and the containers, and the last lines of all containers.
// The API servers come last.
func (c *composition) showLogs() {
	for _, file := range []string{"/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory"} {
		if text, err := os.ReadFile(file); err == nil { // the kernel may lack pressure information
			c.t.Logf("%s: %s", file, text)
		}
	}
	usage, err := docker("stats", "--no-stream", "--format={{.Name}} {{.CPUPerc}} {{.MemUsage}} {{.PIDs}}")
	c.t.Logf("resource use of containers (%v):\n%s", err, usage)
	out, err := docker("ps", "--all", "--format={{.Names}}", "--filter=label="+projectLabel+"="+c.project)
	if err != nil {
		c.t.Log(err)
	}
	names := strings.Fields(out)
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Count(a, "apiserver") - strings.Count(b, "apiserver")
	})
	for _, name := range names {
		log, err := docker("logs", "--tail=40", name)
		var shown strings.Builder
		for line := range strings.Lines(log) {
			shown.WriteString(line[:min(len(line), shownWidth)])
			if len(line) > shownWidth {
				shown.WriteString(" ...\n")
			}
		}
		c.t.Logf("end of the log of %s (%v):\n%s", name, err, shown.String())
	}
}
