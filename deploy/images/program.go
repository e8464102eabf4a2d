package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"binnacle/deploy/certs"
)

// program is the content of an image.
type program struct {
	name string
	// module is the directory of the Go module, pkg the package in it.
	module, pkg string
	// path is the path of the binary in the image.
	path string
	port int
	// root reports whether it runs as root.
	root bool
}

// programs returns all supported programs. etcd and nats-server replace the stock images where no
// registry is reachable: the same programs, in the versions of e2e/go.mod, at the same paths.
func programs() []program {
	var out []program
	for i, s := range suiteServices() {
		out = append(out, program{name: s, pkg: "./services/" + s, path: "/" + s, port: 6443 + i})
	}
	return append(out,
		program{name: "balancer", pkg: "./deploy/balancer", path: "/balancer", port: 6443},
		// For the static pod of kubeadm, which expects this name and keys that only root may read.
		program{
			name: "kube-apiserver",
			pkg:  "./services/apiserver",
			path: "/usr/local/bin/kube-apiserver",
			port: 6443,
			root: true,
		},
		program{name: "etcd", module: "e2e", pkg: "./cmd/etcd", path: "/usr/local/bin/etcd", port: 2379},
		program{name: "nats-server", module: "e2e", pkg: "./cmd/nats-server", path: "/nats-server", port: 4222},
	)
}

// suiteServices returns the services of the suite in the order of their ports.
func suiteServices() []string { return append([]string{"apiserver"}, certs.Services()...) }

func findProgram(name string) (program, error) {
	all := programs()
	i := slices.IndexFunc(all, func(p program) bool { return p.name == name })
	if i < 0 {
		var names []string
		for _, p := range all {
			names = append(names, p.name)
		}
		return program{}, fmt.Errorf("--service %q is none of %s", name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// buildTags exclude an unused encoding of gin and the trace pages of gRPC; see the Makefile.
const buildTags = "nomsgpack,grpcnotrace"

// buildBinary builds a static binary that reports a version of the suite, if version is not empty.
func (p program) buildBinary(ctx context.Context, arch, version, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	ldflags := "-s -w"
	if version != "" {
		ldflags += " -X binnacle/libs/version.release=" + version
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags="+buildTags, "-ldflags="+ldflags, "-o", path, p.pkg)
	cmd.Dir = p.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// dockerfile returns the Dockerfile for a program.
func (p program) dockerfile(template string) string {
	user := "65532:65532"
	if p.root {
		user = "0:0"
	}
	return strings.NewReplacer("@USER@", user, "@NAME@", p.name, "@PATH@", p.path, "@PORT@",
		strconv.Itoa(p.port)).Replace(template)
}
