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

// formEnv names the form of the tests, of which brief has no name.
const formEnv = "BINNACLE_CONTAINERS"

// services are the suite's programs, and what carries them.
func services() []string {
	return append(suite(), "balancer", "etcd", "nats-server")
}

// suite are the suite's services. The console is made in longer forms alone.
func suite() []string {
	out := []string{"apiserver", "authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner", "controllers"}
	if os.Getenv(formEnv) != "" {
		out = append(out, consoleService)
	}
	return out
}

// composition is a suite in containers.
type composition struct {
	t       testing.TB
	project string // also the tag of its images
	state   string // folder of certificates and data
	file    string // compose file
	port    int
	changes []string // pairs of what is replaced in the compose file

	addresses addresses
}

// images are made once for all tests of this process.
var (
	images     = sync.OnceValue(func() error { imagesMade.Store(true); return makeImages(tag(), "") })
	imagesMade atomic.Bool
)

func tag() string { return fmt.Sprintf("%s%d", projectPrefix, os.Getpid()) }

func imageOf(service string) string { return imagesPrefix + "/" + service + ":" + tag() }

// makeImages builds all programs and makes images of them: the suite's services of
// another checkout, when one is given.
func makeImages(tag, checkout string) error {
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
	build := []string{"build", "-tags=nomsgpack", "-ldflags=-s -w", "-o", bin + "/"} // as deploy/images does
	var packages []string
	for _, s := range suite() {
		packages = append(packages, "./services/"+s)
	}
	return errors.Join(
		run(project, "go", append(slices.Clone(build), packages...)...),
		run(self, "go", append(slices.Clone(build), "./deploy/balancer")...),
		run(filepath.Join(self, "e2e"), "go", append(slices.Clone(build), "./cmd/etcd", "./cmd/nats-server")...),
		run(self, "go", "run", "./deploy/images", "--builder=docker", "--bin-dir="+bin, "--out="+filepath.Join(bin, "images"),
			"--prefix="+imagesPrefix, "--tag="+tag, "--service="+strings.Join(services(), ",")),
	)
}

// start brings a composition up and waits until it is ready. changes are pairs of
// texts to replace in the compose file.
func start(t *testing.T, name string, changes ...string) *composition {
	t.Helper()
	needDocker(t)
	needImages(t)
	return startAt(t, name, tag(), changes...)
}

// startAt is start with images that are there.
func startAt(t *testing.T, name, tag string, changes ...string) *composition {
	t.Helper()
	c := &composition{t: t, project: fmt.Sprintf("%s%d-%s", projectPrefix, os.Getpid(), name), state: t.TempDir(), port: harness.FreePort(t)}
	// The engine's containers run as somebody else, who must get at what is his.
	if err := os.Chmod(c.state, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
		remove(t, c.project)
	})
	c.changes = append(changes, "    - --cluster-id=binnacle\n", "    - --cluster-id=binnacle\n    - --feature-gates=WatchList=true\n    - --etcd-compaction-interval=0\n", // the truth is read from the beginning
		// Containers die here, not the machine, and its disk is shared with other tests.
		"    - --initial-cluster-token=binnacle\n", "    - --initial-cluster-token=binnacle\n    - --unsafe-no-fsync\n")
	c.write()
	for err := c.tryCompose("up", "--tag="+tag); err != nil; err = c.tryCompose("up", "--tag="+tag) {
		// Another test may take the port before the engine does.
		if !strings.Contains(err.Error(), "already allocated") && !strings.Contains(err.Error(), "already in use") {
			t.Fatal(err)
		}
		c.port = harness.FreePort(t)
	}
	return c
}

// write makes the compose file.
func (c *composition) write() {
	c.t.Helper()
	folder := filepath.Join(harness.Project(c.t), "deploy", "compose")
	text, err := os.ReadFile(filepath.Join(folder, "compose.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	// The file's own folder is what its paths begin at. What comes first counts.
	replace := slices.Concat(c.changes, []string{"- ../manifests/", "- " + filepath.Dir(folder) + "/manifests/", "- ./nats.conf", "- " + folder + "/nats.conf"})
	c.file = filepath.Join(c.state, "compose.yaml")
	if err := os.WriteFile(c.file, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// compose runs our command of deploy/compose.
func (c *composition) compose(command string, more ...string) {
	c.t.Helper()
	if err := c.tryCompose(command, more...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *composition) tryCompose(command string, more ...string) error {
	c.t.Helper()
	defer c.addresses.forget()
	args := append([]string{command, "--project=" + c.project, "--state=" + c.state, "--file=" + c.file, "--images=" + imagesPrefix,
		"--tag=" + tag(), fmt.Sprintf("--port=%d", c.port), "--no-build", "--no-pull", "--timeout=" + (2 * patience).String()}, more...)
	cmd := exec.CommandContext(c.t.Context(), harness.Binary(c.t, harness.Compose), args...)
	cmd.Dir = harness.Project(c.t)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compose %s: %w\n%s", command, err, out)
	}
	return nil
}

// container is the id of that of a service, running or not.
func (c *composition) container(service string) (string, error) {
	out, err := docker("ps", "--all", "--quiet", "--filter=label="+projectLabel+"="+c.project, "--filter=label="+serviceLabel+"="+service)
	if err != nil {
		return "", err
	}
	ids := strings.Fields(out)
	if len(ids) != 1 {
		return "", fmt.Errorf("%d containers of %s", len(ids), service)
	}
	return ids[0], nil
}

func (c *composition) mustContainer(service string) string {
	c.t.Helper()
	id, err := c.container(service)
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

func (c *composition) network(name string) string { return c.project + "_" + name }

// shownWidth is how much is shown of a line of a log.
const shownWidth = 400

// showLogs tells what the machine and the containers are at, and the last lines of each, those
// of the API servers at the end.
func (c *composition) showLogs() {
	for _, file := range []string{"/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory"} {
		if text, err := os.ReadFile(file); err == nil { // who has none says nothing
			c.t.Logf("%s: %s", file, text)
		}
	}
	usage, err := docker("stats", "--no-stream", "--format={{.Name}} {{.CPUPerc}} {{.MemUsage}} {{.PIDs}}")
	c.t.Logf("what containers take (%v):\n%s", err, usage)
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
		c.t.Logf("log of %s, its last part (%v):\n%s", name, err, shown.String())
	}
}
