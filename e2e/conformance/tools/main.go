// Command tools builds programs of Kubernetes from the module cache into a folder and prints their
// paths. It does not rebuild existing programs.
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
	"strings"
	"time"
)

// program is a program to build.
type program struct {
	name, pkg string
	test      bool // a test binary
	// version is that of the program's own module, whose requirements apply. If it is empty, those of
	// this module do.
	version string
}

var programs = []program{
	{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
	{name: "kubeadm", pkg: "k8s.io/kubernetes/cmd/kubeadm"},
	{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
	{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
	{name: "e2e.test", pkg: "k8s.io/kubernetes/test/e2e", test: true},
	{name: "ginkgo", pkg: "github.com/onsi/ginkgo/v2/ginkgo"}, // runs e2e.test in several processes
	{name: "kubelet", pkg: "k8s.io/kubernetes/cmd/kubelet"},
	{name: "kube-proxy", pkg: "k8s.io/kubernetes/cmd/kube-proxy"},
	{name: "agnhost", pkg: "k8s.io/kubernetes/test/images/agnhost"}, // the image that most specs run
	{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", version: "v0.7.0"},
}

func main() {
	dir := flag.String("dir", "", "folder of the programs; defaults to the user's cache")
	only := flag.String("only", "", "comma-separated programs to build; empty builds all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := build(ctx, *dir, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(ctx context.Context, dir, only string) error {
	selected, err := selection(only)
	if err != nil {
		return err
	}
	version, err := output(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	if dir == "" {
		if dir, err = os.UserCacheDir(); err != nil {
			return err
		}
		dir = filepath.Join(dir, "binnacle-conformance", version)
	}
	for i, p := range selected {
		path := filepath.Join(dir, p.name)
		if _, err := os.Stat(path); err == nil {
			fmt.Printf("[%d/%d] %s exists\n", i+1, len(selected), path)
			continue
		}
		fmt.Printf("[%d/%d] build %s\n", i+1, len(selected), p.name)
		start := time.Now()
		if err := compile(ctx, p, path, version); err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
		fmt.Printf("      %s, in %v\n", path, time.Since(start).Round(time.Second))
	}
	return nil
}

func selection(only string) ([]program, error) {
	if only == "" {
		return programs, nil
	}
	var out []program
	for name := range strings.SplitSeq(only, ",") {
		found := false
		for _, p := range programs {
			if p.name == name {
				out, found = append(out, p), true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown program %q", name)
		}
	}
	return out, nil
}

// compile builds a program like its release.
func compile(ctx context.Context, p program, path, version string) error {
	minor := strings.Split(version, ".")
	if len(minor) < 3 {
		return errors.New("unexpected version " + version)
	}
	flags := "-s -w"
	for _, at := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for field, value := range map[string]string{
			"gitVersion":   version,
			"gitMajor":     "1",
			"gitMinor":     minor[1],
			"gitTreeState": "clean",
		} {
			flags += fmt.Sprintf(" -X %s.%s=%s", at, field, value)
		}
	}
	args := []string{"build", "-ldflags=" + flags, "-o", path, p.pkg}
	switch {
	case p.test:
		args = []string{"test", "-c", "-vet=off", "-ldflags=" + flags, "-o", path, p.pkg}
	case p.version != "":
		args = []string{"install", "-ldflags=-s -w", p.pkg + "@" + p.version}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOBIN="+filepath.Dir(path))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out)), err
}
