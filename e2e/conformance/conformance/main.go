// Command conformance runs the conformance specs of Kubernetes that need no container against
// binnacle, with kube-controller-manager, kube-scheduler and simulated nodes of kwok. It prints a
// table of the results. A result that differs from the file of expected results is a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// minSpecs is the number of specs that run at least, unless a pattern selects some.
const minSpecs = 150

// procsPerCPU is the default number of processes that run specs, per CPU. Specs wait most of the
// time.
const procsPerCPU = 4

// options are the options of the command.
type options struct {
	cluster  clusterConfig
	expected string
	focus    string
	procs    int
	timeout  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.cluster.binnacle, "binnacle", "", "path of the binary binnacle")
	flag.StringVar(&o.cluster.tools, "tools", "", "folder of the programs of Kubernetes; defaults to the one of command tools")
	flag.StringVar(&o.cluster.dir, "dir", "", "folder of data and logs; defaults to a new temporary folder")
	flag.IntVar(&o.cluster.port, "port", 27443, "port of the API server; the other programs take the ports after it")
	flag.BoolVar(&o.cluster.suite, "suite", false, "run all services of the suite instead of only the API server")
	flag.BoolVar(&o.cluster.ownControllers, "own-controllers", false,
		"let the service controllers take the place of the same controllers of kube-controller-manager")
	flag.BoolVar(&o.cluster.node, "node", false,
		"join this machine as a node, with containerd, kubelet and kube-proxy, instead of simulated nodes")
	flag.StringVar(&o.expected, "expected", "", "file with the specs that do not run and those that fail")
	flag.StringVar(&o.focus, "focus", "", "regular expression that selects specs; empty runs all")
	flag.IntVar(&o.procs, "procs", procsPerCPU*runtime.NumCPU(), "number of processes that run specs")
	flag.DurationVar(&o.timeout, "timeout", 3*time.Hour, "timeout of all specs")
	flag.Parse()
	if o.expected == "" {
		o.expected = o.cluster.expectedFile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	want, err := readExpected(o.expected, o.cluster.suite)
	if err != nil {
		return err
	}
	focus, err := regexp.Compile(o.focus)
	if err != nil {
		return fmt.Errorf("-focus: %w", err)
	}
	if o.cluster.node {
		if err := checkHost(); err != nil {
			fmt.Println("skipped:", err)
			return nil
		}
	}
	if err := o.cluster.complete(ctx); err != nil {
		return err
	}
	fmt.Println("logs:", o.cluster.dir)
	c, err := startCluster(ctx, o.cluster)
	if err != nil {
		return err
	}
	defer c.stop()
	checks, err := checkCustomResources(c.ctx, c.client)
	if err != nil {
		return fmt.Errorf("custom resources: %w", err)
	}
	results, err := runSpecs(c.ctx, c, o, want.skipPatterns())
	if err != nil {
		if cause := context.Cause(c.ctx); cause != nil {
			return cause
		}
		return err
	}
	t := compare(results, want, focus)
	if o.focus == "" {
		t.requireAll(want, results, minSpecs)
	}
	for _, r := range checks {
		t.add(r)
	}
	t.print(os.Stdout)
	if t.differences > 0 {
		return fmt.Errorf("%d results differ from the expected ones", t.differences)
	}
	return nil
}

// complete fills in defaults and makes paths absolute.
func (c *clusterConfig) complete(ctx context.Context) error {
	var err error
	if c.binnacle, err = filepath.Abs(c.binnacle); err != nil {
		return err
	}
	if c.tools == "" {
		if c.tools, err = toolsDir(ctx); err != nil {
			return err
		}
	}
	needed := []string{"e2e.test", "ginkgo", "kubectl", "kube-controller-manager", "kube-scheduler"}
	if c.node {
		needed = append(needed, "kubelet", "kube-proxy", "agnhost")
	} else {
		needed = append(needed, "kwok")
	}
	for _, name := range needed {
		if _, err := os.Stat(filepath.Join(c.tools, name)); err != nil {
			return errors.Join(err, errors.New("run make conformance-tools"))
		}
	}
	if c.dir == "" {
		c.dir, err = os.MkdirTemp("", "conformance")
		return err
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	return os.MkdirAll(c.dir, 0o755)
}

// expectedFile returns the file with the expected results.
func (c clusterConfig) expectedFile() string {
	if c.node {
		return "conformance/expected-node.yaml"
	}
	return "conformance/expected.yaml"
}

// toolsDir returns the folder where command tools puts programs.
func toolsDir(ctx context.Context) (string, error) {
	version, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "binnacle-conformance", strings.TrimSpace(string(version))), err
}
