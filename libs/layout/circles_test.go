package layout

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesHaveNoDependencyCycles checks that in some packages no two files depend on each other, so that
// each file can be read after those that it uses.
func TestFilesHaveNoDependencyCycles(t *testing.T) {
	root := filepath.Join(moduleRoot(t), "services", "apiserver", "internal")
	for _, name := range []string{"rest/writes", "rest/patch", "rest/responsewriters", "rest/handlers"} {
		t.Run(name, func(t *testing.T) {
			sources := map[string]string{}
			files, err := filepath.Glob(filepath.Join(root, name, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if strings.HasSuffix(file, "_test.go") {
					continue
				}
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				sources[filepath.Base(file)] = string(data)
			}
			if len(sources) < 5 {
				t.Fatalf("only %d files were seen", len(sources))
			}
			for _, cycle := range dependencyCycles(t, sources) {
				t.Errorf("dependency cycle between files: %s", strings.Join(cycle, " "))
			}
		})
	}
}

// TestDependencyCyclesAreFound checks that the search finds a cycle between files of one package.
func TestDependencyCyclesAreFound(t *testing.T) {
	got := dependencyCycles(t, map[string]string{
		"a.go": "package p\nfunc A() { new(T).b() }",
		"b.go": "package p\ntype T struct{}\nfunc (t *T) b() { c() }",
		"c.go": "package p\nfunc c() { A() }",
		"d.go": "package p\nimport \"fmt\"\nfunc d() { fmt.Println(A) }",
	})
	if len(got) != 1 || strings.Join(got[0], " ") != "a.go b.go c.go" {
		t.Errorf("found cycles %v, want one of a.go, b.go and c.go", got)
	}
}

// noImports is an importer that knows no packages.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) {
	return nil, errors.New("imports are ignored")
}

// dependencyCycles returns the sets of files of one package that depend on each other's
// declarations.
func dependencyCycles(t *testing.T, sources map[string]string) (out [][]string) {
	t.Helper()
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		file, err := parser.ParseFile(fset, name, sources[name], parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check("p", fset, parsed, info) // errors are expected, because imports are unknown
	uses := map[string]map[string]bool{}
	for ident, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() || obj.Name() == "_" {
			continue
		}
		from, to := fset.Position(ident.Pos()).Filename, fset.Position(obj.Pos()).Filename
		if from != to {
			if uses[from] == nil {
				uses[from] = map[string]bool{}
			}
			uses[from][to] = true
		}
	}
	reach := map[string]map[string]bool{}
	for from := range uses {
		seen := map[string]bool{}
		for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
			for to := range uses[todo[0]] {
				if !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
		reach[from] = seen
	}
	reported := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(reach)) {
		if reported[name] || !reach[name][name] {
			continue
		}
		var cycle []string
		for other := range reach[name] {
			if reach[other][name] {
				cycle = append(cycle, other)
				reported[other] = true
			}
		}
		slices.Sort(cycle)
		out = append(out, cycle)
	}
	return out
}
