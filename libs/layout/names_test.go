package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// sentenceStart matches a sentence that starts with an identifier: one in lower or mixed case.
var sentenceStart = regexp.MustCompile(`(?:^|\. )([a-z][a-z0-9]*(?:[A-Z]\w*)?|[A-Z][a-z0-9]+[A-Z]\w*) (?:are|mean|[a-z]+s)\b`)

// lowercaseWords matches words that a sentence may start with although they are not identifiers.
var lowercaseWords = regexp.MustCompile(`^(etcd|bbolt|kubectl|nil|null|v\d+((alpha|beta)\d+)?|OpenAPI)$`)

// TestCommentsNameIdentifiers checks doc comments, so that a rename changes them too: if the first
// sentence starts with an identifier, it is one of the declaration. Other sentences start with
// identifiers of the file.
func TestCommentsNameIdentifiers(t *testing.T) {
	root := moduleRoot(t)
	goFiles(t, root, func(name string, source []byte) {
		for _, u := range unknownNames(t, name, source) {
			t.Error(u)
		}
	})
}

// TestCommentsNameIdentifiersFindsStaleNames checks that doc comments with names of other
// identifiers are found.
func TestCommentsNameIdentifiersFindsStaleNames(t *testing.T) {
	source := "package p\n\n// f returns x. y is ignored.\nfunc g(x int) int { return x }\n\ntype s struct {\n\t// at is a place.\n\tplace int\n}\n"
	if got := unknownNames(t, "p.go", []byte(source)); len(got) != 3 {
		t.Errorf("unknownNames() = %q, want 3: f, y and at", got)
	}
}

// unknownNames returns the identifiers that doc comments of a file name and the declarations do not
// contain.
func unknownNames(t *testing.T, name string, source []byte) (out []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	inFile := identifiers(file)
	check := func(doc *ast.CommentGroup, n ast.Node) {
		if doc == nil {
			return
		}
		known := identifiers(n)
		text := strings.Join(strings.Fields(doc.Text()), " ")
		for _, m := range sentenceStart.FindAllStringSubmatchIndex(text, -1) {
			word := text[m[2]:m[3]]
			if !known[word] && (m[0] == 0 || !inFile[word]) && !lowercaseWords.MatchString(word) {
				out = append(out, fmt.Sprintf("%s: the declaration does not contain %q", fset.Position(doc.Pos()), word))
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Doc, n)
		case *ast.GenDecl:
			check(n.Doc, n)
			for _, spec := range n.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					check(spec.Doc, n)
				case *ast.ValueSpec:
					check(spec.Doc, n)
				}
			}
		case *ast.StructType:
			for _, f := range n.Fields.List {
				check(f.Doc, n)
			}
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				check(f.Doc, n)
			}
		}
		return true
	})
	return out
}

// identifiers returns the names of all identifiers of a node.
func identifiers(n ast.Node) map[string]bool {
	out := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			out[id.Name] = true
		}
		return true
	})
	return out
}
