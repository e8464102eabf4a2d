package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The maximum numbers of fields of a struct and of parameters of a function.
const (
	maxFields     = 12
	maxParameters = 10
)

// TestConstructorsAreSmall checks that the composition root of the API server has no struct that
// carries everything, and no constructor that takes everything.
func TestConstructorsAreSmall(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(moduleRoot(t), "services", "apiserver", "internal", "build", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	functions := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				if got := fieldCount(n.Fields); got > maxFields {
					t.Errorf("%s: a struct has %d fields, at most %d are allowed", fset.Position(n.Pos()), got, maxFields)
				}
			case *ast.FuncDecl:
				functions++
				if got := fieldCount(n.Type.Params); got > maxParameters {
					t.Errorf("%s: %s has %d parameters, at most %d are allowed", fset.Position(n.Pos()), n.Name.Name,
						got, maxParameters)
				}
			}
			return true
		})
	}
	if functions < 100 {
		t.Errorf("found %d functions, want at least 100", functions)
	}
}

// fieldCount returns the number of fields or parameters of a list.
func fieldCount(list *ast.FieldList) (count int) {
	for _, f := range list.List {
		count += max(1, len(f.Names))
	}
	return count
}
