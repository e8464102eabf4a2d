package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// state is an API: its types, the kinds that are served, and the feature gates.
type state struct {
	minor    int      // the minor version of Kubernetes 1
	sources  []string // modules with versions
	packages map[string]*apiPackage
	// kinds holds the kinds that are served, as "group/version Kind". It is nil for a published
	// version, whose lifecycle methods tell.
	kinds map[string]bool
	gates map[string]gate
}

// Folders of types that are not in k8s.io/api, by their API group: in the published module, and
// below the folder of the API server.
var extraTypes = []struct{ module, published, local string }{
	{"k8s.io/apiextensions-apiserver", "pkg/apis/apiextensions", "registry/apis/apiextensions"},
	{"k8s.io/kube-aggregator", "pkg/apis/apiregistration", "registry/apis/apiregistration"},
}

// Folders of published modules that declare feature gates of kube-apiserver.
var gateFolders = []struct{ module, folder string }{
	{"k8s.io/apiserver", "pkg/features"},
	{"k8s.io/apiextensions-apiserver", "pkg/features"},
	{"k8s.io/client-go", "features"},
	{"k8s.io/component-base", "metrics/features"},
	{"k8s.io/component-base", "logs/api/v1"},
	{"k8s.io/component-base", "zpages/features"},
	{"k8s.io/controller-manager", "pkg/features"},
	{"k8s.io/kubernetes", "pkg/features"},
}

// local reads the API of the main module at root.
func local(root string) (*state, error) {
	s := &state{kinds: map[string]bool{}}
	module, err := command(root, "list", "-m", "-f", "{{.Dir}} {{.Version}}", "k8s.io/api")
	if err != nil {
		return nil, err
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(module)), " ")
	s.sources = []string{"k8s.io/api " + version}
	if _, err := fmt.Sscanf(version, "v0.%d.", &s.minor); err != nil {
		return nil, fmt.Errorf("version %s of k8s.io/api: %w", version, err)
	}
	if s.packages, err = readTypes(dir); err != nil {
		return nil, err
	}
	server := filepath.Join(root, "services", "apiserver", "internal")
	for _, extra := range extraTypes {
		packages, err := readTypes(filepath.Dir(filepath.Join(server, extra.local)))
		if err != nil {
			return nil, err
		}
		keepUnder(s.packages, packages, filepath.Base(extra.local))
	}
	kinds, err := command(root, "run", "./services/apiserver/internal/api/kinds/builtin/list")
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(kinds)); lines.Scan(); {
		s.kinds[lines.Text()] = true
	}
	files, err := sourceFiles(filepath.Join(root, "libs", "features"))
	if err != nil {
		return nil, err
	}
	// history.go has the gates of older versions.
	files = slices.DeleteFunc(files, func(name string) bool { return filepath.Base(name) == "history.go" })
	s.gates, err = readGates(files, s.minor)
	return s, err
}

// published downloads the modules of a minor version of Kubernetes and reads them.
func published(minor int) (*state, error) {
	s := &state{minor: minor}
	dir, err := s.download("k8s.io/api")
	if err != nil {
		return nil, err
	}
	if s.packages, err = readTypes(dir); err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	folderOf := func(module string) (string, error) {
		if dirs[module] == "" {
			dir, err := s.download(module)
			if err != nil {
				return "", err
			}
			dirs[module] = dir
		}
		return dirs[module], nil
	}
	for _, extra := range extraTypes {
		dir, err := folderOf(extra.module)
		if err != nil {
			return nil, err
		}
		packages, err := readTypes(filepath.Dir(filepath.Join(dir, extra.published)))
		if err != nil {
			return nil, err
		}
		keepUnder(s.packages, packages, filepath.Base(extra.published))
	}
	var files []string
	for _, gates := range gateFolders {
		dir, err := folderOf(gates.module)
		if err != nil {
			return nil, err
		}
		sources, err := sourceFiles(filepath.Join(dir, gates.folder))
		if err != nil {
			return nil, err
		}
		files = append(files, sources...)
	}
	s.gates, err = readGates(files, minor)
	return s, err
}

// sourceFiles returns the Go files of a folder, except tests.
func sourceFiles(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") }), err
}

// keepUnder copies the packages below a folder.
func keepUnder(to, from map[string]*apiPackage, folder string) {
	for path, p := range from {
		if strings.HasPrefix(path, folder+"/") {
			to[path] = p
		}
	}
}

// download returns the folder of the newest patch release of a module in the module cache.
func (s *state) download(module string) (string, error) {
	query := fmt.Sprintf("%s@v0.%d", module, s.minor)
	if module == "k8s.io/kubernetes" {
		query = fmt.Sprintf("%s@v1.%d", module, s.minor)
	}
	out, err := command("", "mod", "download", "-json", query)
	if err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	var got struct{ Dir, Version string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", err
	}
	s.sources = append(s.sources, module+" "+got.Version)
	return got.Dir, nil
}

// command runs the go command in a folder and returns its output.
func command(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}
