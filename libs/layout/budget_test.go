package layout

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the tests compare with: testdata/budget, docs/user/compatibility.md")

// TestDependencyBudget compares the dependencies of each binary with its file in testdata/budget:
// the number of packages of each module. A new dependency is a visible change of that file. To
// accept it:
//
//	go test ./libs/layout -run TestDependencyBudget -update
func TestDependencyBudget(t *testing.T) {
	root := moduleRoot(t)
	mains := []string{"binnacle/cmd/binnacle"}
	services, err := os.ReadDir(filepath.Join(root, "services"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range services {
		mains = append(mains, "binnacle/services/"+s.Name())
	}
	packages := importGraph(t, root, mains)
	for _, name := range mains {
		file := filepath.Join("testdata", "budget", name[strings.LastIndex(name, "/")+1:]+".txt")
		got := packageCounts(packages, name)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := lineChanges(string(want), got); len(diff) > 0 {
			t.Errorf("dependencies of %s differ from libs/layout/%s:\n%s\nTo accept them: go test ./libs/layout -run TestDependencyBudget -update",
				name, file, strings.Join(diff, "\n"))
		}
	}
}

// imported is a package outside the standard library.
type imported struct {
	module  string
	imports []string
}

// importGraph returns the packages of binaries for linux/amd64.
func importGraph(t *testing.T, root string, mains []string) map[string]imported {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-tags=nomsgpack,grpcnotrace", "-f",
		`{{if not .Standard}}{{.ImportPath}} {{.Module.Path}} {{join .Imports " "}}{{end}}`}, mains...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]imported{}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			packages[fields[0]] = imported{fields[1], fields[2:]}
		}
	}
	return packages
}

// packageCounts returns the number of packages of each module in a binary, a line for each.
func packageCounts(packages map[string]imported, name string) string {
	counts, seen := map[string]int{}, map[string]bool{name: true}
	for todo := []string{name}; len(todo) > 0; todo = todo[1:] {
		p := packages[todo[0]]
		counts[p.module]++
		for _, i := range p.imports {
			if _, ok := packages[i]; ok && !seen[i] {
				seen[i] = true
				todo = append(todo, i)
			}
		}
	}
	out := fmt.Sprintf("%4d packages besides the standard library\n", len(seen))
	for _, module := range slices.Sorted(maps.Keys(counts)) {
		out += fmt.Sprintf("%4d %s\n", counts[module], module)
	}
	return out
}

// lineChanges returns the lines that are only in one of two texts.
func lineChanges(before, after string) (out []string) {
	oldLines, newLines := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range oldLines {
		if !slices.Contains(newLines, line) {
			out = append(out, "-"+line)
		}
	}
	for _, line := range newLines {
		if !slices.Contains(oldLines, line) {
			out = append(out, "+"+line)
		}
	}
	return out
}
