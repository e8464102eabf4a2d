package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "binnacle"

// pkg holds the fields of `go list -json` that the rules use.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Module       *struct{ Path string }
}

// confinedImports lists imports that only the named packages, and packages below them, may have in
// production code.
func confinedImports() []struct {
	path      string
	importers []string
} {
	return []struct {
		path      string
		importers []string
	}{
		{
			path:      "go.etcd.io",
			importers: []string{module + "/services/apiserver/internal/storage/etcd", module + "/deploy/members/etcd"},
		},
		{path: "sigs.k8s.io/apiserver-network-proxy", importers: []string{module + "/services/apiserver/internal/proxy/egress"}},
		{
			path:      "github.com/nats-io",
			importers: []string{module + "/services/apiserver/internal/storage/fanout", module + "/deploy/members/nats"},
		},
	}
}

// forbiddenModules lists the modules that this project implements.
func forbiddenModules() []string {
	return []string{"k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator",
		"k8s.io/kubernetes", "k8s.io/controller-manager"}
}

// groups lists the groups of packages of the API server from the top to the bottom. A package
// imports only packages of its own group and of groups below it in production code.
func groups() []string {
	return []string{
		"build", "config", "server", "controllers", "rest", "admission", "security", "api", "crd", "proxy",
		"cache", "codec", "status", "storage", "request", "registry", "cel", "json",
	}
}

// forbiddenImports lists imports that are not allowed within a group, in production code.
func forbiddenImports() []struct{ from, to string } {
	return []struct{ from, to string }{
		{from: "rest/writes", to: "rest/handlers"},
		{from: "rest/writes", to: "rest/responsewriters"},
		{from: "rest/writes", to: "rest/subresources"},
		{from: "rest/writes", to: "rest/internalclient"},
		{from: "rest/patch", to: "rest/writes"},
		{from: "rest/patch", to: "rest/handlers"},
		{from: "rest/patch", to: "rest/responsewriters"},
		{from: "rest/responsewriters", to: "rest/handlers"},
		{from: "rest/responsewriters", to: "rest/writes"},
		{from: "rest/responsewriters", to: "rest/subresources"},
		{from: "rest/handlers", to: "rest/subresources"},
		{from: "rest/handlers", to: "rest/internalclient"},
		{from: "rest/subresources", to: "rest/internalclient"},
		{from: "rest/subresources/pods", to: "rest/subresources/tokens"},
		{from: "rest/subresources/pods", to: "rest/subresources/reviewhandlers"},
		{from: "rest/subresources/tokens", to: "rest/subresources/pods"},
		{from: "rest/subresources/tokens", to: "rest/subresources/reviewhandlers"},
		{from: "rest/subresources/reviewhandlers", to: "rest/subresources/pods"},
		{from: "rest/subresources/reviewhandlers", to: "rest/subresources/tokens"},
		{from: "rest/internalclient", to: "rest/handlers"},
		{from: "rest/internalclient", to: "rest/responsewriters"},
		{from: "cache/watchcache", to: "codec"},
		{from: "cache/watchcache", to: "registry"},
		{from: "cache/watchcache", to: "storage/fanout"},
		{from: "storage/etcd", to: "storage/fanout"},
	}
}

// internal returns the path of a package of the API server.
func internal(name string) string { return module + "/services/apiserver/internal/" + name }

// group returns the index in groups of the group of a package. It is -1 for a package outside the
// API server, and the number of groups for one in an unknown group.
func group(importPath string) int {
	remaining, ok := strings.CutPrefix(importPath, internal(""))
	if !ok {
		return -1
	}
	name, _, _ := strings.Cut(remaining, "/")
	if i := slices.Index(groups(), name); i >= 0 {
		return i
	}
	return len(groups())
}

// forTests reports whether a package is used only by tests.
func forTests(importPath string) bool {
	name, _, _ := strings.Cut(importPath, "/cmd/") // a command counts as its package
	name = path.Base(name)
	return under(importPath, module) && strings.HasSuffix(name, "test") && !strings.HasSuffix(name, "attest")
}

// violations returns the rules that a package violates.
func violations(checked pkg) []string {
	var out []string
	if checked.Module != nil && slices.Contains(forbiddenModules(), checked.Module.Path) {
		out = append(out, checked.ImportPath+" is in a forbidden module")
	}
	if !under(checked.ImportPath, module) {
		return out
	}
	if slices.Contains([]string{"util", "utils"}, path.Base(checked.ImportPath)) {
		out = append(out, checked.ImportPath+" has a name without meaning")
	}
	for _, imported := range checked.Imports {
		if imported == "github.com/spf13/pflag" && group(checked.ImportPath) >= 0 && checked.ImportPath != internal("config") {
			out = append(out, checked.ImportPath+" imports pflag, but only config defines flags")
		}
		for _, confined := range confinedImports() {
			mayImport := slices.ContainsFunc(confined.importers, func(by string) bool { return under(checked.ImportPath, by) })
			if under(imported, confined.path) && !mayImport {
				out = append(out, fmt.Sprintf("%s imports %s, which only %s may", checked.ImportPath, imported,
					strings.Join(confined.importers, " and ")))
			}
		}
	}
	own := group(checked.ImportPath)
	if own == len(groups()) {
		out = append(out, checked.ImportPath+" is in no group")
	}
	for _, imported := range checked.Imports {
		if importedGroup := group(imported); importedGroup >= 0 && own > importedGroup && !forTests(checked.ImportPath) {
			out = append(out, fmt.Sprintf("%s imports %s, which is in a group above", checked.ImportPath, imported))
		}
		for _, forbidden := range forbiddenImports() {
			if under(checked.ImportPath, internal(forbidden.from)) && under(imported, internal(forbidden.to)) && !forTests(checked.ImportPath) {
				out = append(out, fmt.Sprintf("%s imports %s: %s must not import %s", checked.ImportPath, imported, forbidden.from, forbidden.to))
			}
		}
		if forTests(imported) && !forTests(checked.ImportPath) {
			out = append(out, fmt.Sprintf("%s imports %s, which is a test package", checked.ImportPath, imported))
		}
		if imported == "net/http" && (under(checked.ImportPath, internal("rest/writes")) || under(checked.ImportPath,
			internal("rest/patch"))) {
			out = append(out, checked.ImportPath+" imports net/http")
		}
	}
	for _, imported := range slices.Concat(checked.Imports, checked.TestImports, checked.XTestImports) {
		if reason := mayNotImport(checked.ImportPath, imported); reason != "" {
			out = append(out, fmt.Sprintf("%s imports %s: %s", checked.ImportPath, imported, reason))
		}
	}
	return out
}

// mayNotImport returns why importer may not import imported, or "". The rule includes tests.
func mayNotImport(importer, imported string) string {
	for _, forbidden := range forbiddenModules() {
		if under(imported, forbidden) {
			return "it is in a forbidden module"
		}
	}
	service := serviceOf(imported)
	switch {
	case service == "":
	case serviceOf(importer) != "" && serviceOf(importer) != service:
		return "services share only the wire protocol"
	case under(importer, module+"/libs"):
		return "libs do not import services"
	case under(importer, module+"/deploy"):
		return "deploy runs services as binaries and does not import them"
	case serviceOf(importer) == "" && path.Base(imported) != "program":
		return "other packages import only the package program of a service"
	}
	return ""
}

// serviceOf returns the service that a package belongs to, or "".
func serviceOf(importPath string) string {
	remaining, ok := strings.CutPrefix(importPath, module+"/services/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(remaining, "/")
	return name
}

func under(importPath, parent string) bool {
	return importPath == parent || strings.HasPrefix(importPath, parent+"/")
}

// TestPackagesImportOnlyAllowedPackages checks which packages may import each other.
func TestPackagesImportOnlyAllowedPackages(t *testing.T) {
	root := moduleRoot(t)
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports,TestImports,XTestImports,Module", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	own := 0
	for dec := json.NewDecoder(stdout); ; {
		var listed pkg
		err := dec.Decode(&listed)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if under(listed.ImportPath, module) {
			own++
		}
		for _, violation := range violations(listed) {
			t.Error(violation)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if own < 10 {
		t.Errorf("found %d packages of the module, want at least 10", own)
	}
}

// TestGoModRequiresNothingForbidden checks that go.mod does not require modules of the Kubernetes
// server.
func TestGoModRequiresNothingForbidden(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(moduleRoot(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range requiredForbidden(string(data)) {
		t.Error(v)
	}
}

func requiredForbidden(gomod string) []string {
	var out []string
	for line := range strings.Lines(gomod) {
		for _, word := range strings.Fields(line) {
			if slices.Contains(forbiddenModules(), word) {
				out = append(out, "go.mod names "+word)
			}
		}
	}
	return out
}

// TestRulesCatchViolations checks the rules with graphs that violate them.
func TestRulesCatchViolations(t *testing.T) {
	const server = module + "/services/apiserver/internal"
	tests := []struct {
		name      string
		candidate pkg
		want      int
	}{
		{
			name:      "etcd in its package",
			candidate: pkg{ImportPath: server + "/storage/etcd/embedded", Imports: []string{"go.etcd.io/etcd/server/v3/embed"}},
			want:      0,
		},
		{
			name:      "etcd beside its package",
			candidate: pkg{ImportPath: server + "/storage/etcdlike", Imports: []string{"go.etcd.io/etcd/client/v3"}},
			want:      1,
		},
		{
			name:      "etcd in a test",
			candidate: pkg{ImportPath: server + "/cache/watchcache", TestImports: []string{"go.etcd.io/etcd/client/v3"}},
			want:      0,
		},
		{
			name:      "NATS in its package",
			candidate: pkg{ImportPath: server + "/storage/fanout", Imports: []string{"github.com/nats-io/nats.go"}},
			want:      0,
		},
		{name: "NATS elsewhere", candidate: pkg{ImportPath: server + "/build", Imports: []string{"github.com/nats-io/nats.go"}}, want: 1},
		{
			name:      "service to its own",
			candidate: pkg{ImportPath: module + "/services/apiserver", Imports: []string{server + "/build"}},
			want:      0,
		},
		{
			name:      "service to service",
			candidate: pkg{ImportPath: module + "/services/tokencleaner", Imports: []string{server + "/build"}},
			want:      1,
		},
		{
			name:      "service to service in a test",
			candidate: pkg{ImportPath: module + "/services/tokencleaner", XTestImports: []string{server + "/build"}},
			want:      1,
		},
		{name: "service to libs", candidate: pkg{ImportPath: server + "/build", Imports: []string{module + "/libs/serving"}}, want: 0},
		{name: "libs to service", candidate: pkg{ImportPath: module + "/libs/serving", Imports: []string{server + "/build"}}, want: 1},
		{
			name:      "deploy to service",
			candidate: pkg{ImportPath: module + "/deploy/local", TestImports: []string{server + "/build"}},
			want:      1,
		},
		{
			name:      "a binary of several services to their entry points",
			candidate: pkg{ImportPath: module + "/cmd/binnacle", Imports: []string{module + "/services/tokencleaner/program"}},
			want:      0,
		},
		{
			name:      "a binary of several services to their internals",
			candidate: pkg{ImportPath: module + "/cmd/binnacle", Imports: []string{server + "/build"}},
			want:      1,
		},
		{
			name:      "service to the entry point of another service",
			candidate: pkg{ImportPath: module + "/services/tokencleaner", Imports: []string{module + "/services/apiserver/program"}},
			want:      1,
		},
		{
			name:      "etcd's member",
			candidate: pkg{ImportPath: module + "/deploy/members/etcd", Imports: []string{"go.etcd.io/etcd/server/v3/embed"}},
			want:      0,
		},
		{
			name:      "NATS in etcd's member",
			candidate: pkg{ImportPath: module + "/deploy/members/etcd", Imports: []string{"github.com/nats-io/nats.go"}},
			want:      1,
		},
		{
			name:      "deploy to libs",
			candidate: pkg{ImportPath: module + "/deploy/certs", Imports: []string{module + "/libs/serving/tlsfiles"}},
			want:      0,
		},
		{name: "util", candidate: pkg{ImportPath: module + "/libs/util"}, want: 1},
		{name: "util of another module", candidate: pkg{ImportPath: "example.com/util"}, want: 0},
		{
			name:      "a package to one below in its group",
			candidate: pkg{ImportPath: server + "/rest/handlers", Imports: []string{server + "/rest/writes"}},
			want:      0,
		},
		{
			name:      "a package to one above in its group",
			candidate: pkg{ImportPath: server + "/rest/writes", Imports: []string{server + "/rest/handlers"}},
			want:      1,
		},
		{
			name:      "a package to one above in a test",
			candidate: pkg{ImportPath: server + "/rest/writes", XTestImports: []string{server + "/rest/handlers"}},
			want:      0,
		},
		{
			name:      "an operation to another",
			candidate: pkg{ImportPath: server + "/rest/subresources/pods", Imports: []string{server + "/rest/subresources/tokens"}},
			want:      1,
		},
		{
			name:      "a group to one below",
			candidate: pkg{ImportPath: server + "/rest/writes", Imports: []string{server + "/cache/watchcache"}},
			want:      0,
		},
		{
			name:      "a group to one above",
			candidate: pkg{ImportPath: server + "/cache/watchcache", Imports: []string{server + "/rest/writes"}},
			want:      1,
		},
		{
			name:      "options to the package that reads them",
			candidate: pkg{ImportPath: server + "/config", Imports: []string{server + "/build"}},
			want:      1,
		},
		{
			name:      "flags in their package",
			candidate: pkg{ImportPath: server + "/config", Imports: []string{"github.com/spf13/pflag"}},
			want:      0,
		},
		{name: "flags elsewhere", candidate: pkg{ImportPath: server + "/build", Imports: []string{"github.com/spf13/pflag"}}, want: 1},
		{name: "a package outside all groups", candidate: pkg{ImportPath: server + "/other"}, want: 1},
		{name: "HTTP in writes", candidate: pkg{ImportPath: server + "/rest/writes", Imports: []string{"net/http"}}, want: 1},
		{
			name:      "a test package",
			candidate: pkg{ImportPath: server + "/build", Imports: []string{server + "/storage/storagetest"}},
			want:      1,
		},
		{
			name:      "a test package in a test",
			candidate: pkg{ImportPath: server + "/build", TestImports: []string{server + "/storage/storagetest"}},
			want:      0,
		},
		{
			name:      "a test package in another",
			candidate: pkg{ImportPath: server + "/storage/etcd/etcdtest", Imports: []string{server + "/storage/storagetest"}},
			want:      0,
		},
		{
			name:      "forbidden import",
			candidate: pkg{ImportPath: server + "/build", TestImports: []string{"k8s.io/apiserver/pkg/server"}},
			want:      1,
		},
		{
			name:      "forbidden module",
			candidate: pkg{ImportPath: "k8s.io/kubernetes/pkg/api", Module: &struct{ Path string }{"k8s.io/kubernetes"}},
			want:      1,
		},
		{
			name:      "api and apimachinery",
			candidate: pkg{ImportPath: server + "/build", Imports: []string{"k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/runtime"}},
			want:      0,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := violations(test.candidate); len(got) != test.want {
				t.Errorf("%d violations %q, want %d", len(got), got, test.want)
			}
		})
	}
	if got := requiredForbidden("require (\n\tk8s.io/apiserver v0.33.0 // indirect\n\tk8s.io/api v0.33.0\n)\n"); len(got) != 1 {
		t.Errorf("requiredForbidden() = %q, want only k8s.io/apiserver", got)
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// TestErrorsAreBounded checks that only one package formats the errors of an object, because it
// limits them. The functions of apimachinery take time quadratic in the number of errors.
func TestErrorsAreBounded(t *testing.T) {
	root := filepath.Join(moduleRoot(t), "services", "apiserver", "internal")
	files := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Base(filepath.Dir(path)) == "status" {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		for _, unbounded := range []string{"apierrors.NewInvalid(", ".ToAggregate().Error()"} {
			if strings.Contains(string(data), unbounded) {
				t.Errorf("%s calls %s", path, unbounded)
			}
		}
		return err
	})
	if err != nil || files < 100 {
		t.Errorf("found %d files, %v", files, err)
	}
}
