package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// banned lists words and phrases that comments, texts and identifiers do not use.
var banned = regexp.MustCompile(`(?i)\b(who|whoever|whom|nobody|somebody|everybody|anybody|told|anew|of which|so many|hangs? on|made of|gives? way|lets? in)\b`)

// allowed lists accepted uses: a file and the text that it may contain.
var allowed = []struct{ file, text, reason string }{
	{file: "libs/layout/language_test.go", text: "", reason: "it lists the words"},
	{file: "e2e/golden/case.go", text: "nobody", reason: "a key of golden cases: no body"},
	{file: "e2e/conformance/conformance/images.go", text: "nobody", reason: "a user of Unix"},
}

const maxAllowed = 20

// persons matches "who" where it stands for people, not for requests or clients.
var persons = regexp.MustCompile(`(?i)\b(users?|developers?|people|persons?|administrators?|operators?),? who\b`)

// TestGoFilesAvoidBannedWords checks the comments, string literals and identifiers of all Go files.
func TestGoFilesAvoidBannedWords(t *testing.T) {
	if len(allowed) >= maxAllowed {
		t.Errorf("%d exceptions, expected fewer than %d", len(allowed), maxAllowed)
	}
	goFiles(t, moduleRoot(t), func(name string, source []byte) {
		for _, u := range bannedUses(t, name, source) {
			t.Error(u)
		}
	})
}

// goFiles calls check for all Go files below root, with the path relative to it.
func goFiles(t *testing.T, root string, check func(name string, source []byte)) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(root, func(path string, dirEntry fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case dirEntry.IsDir() && (dirEntry.Name() == "testdata" || dirEntry.Name() == "bin" || path != root && strings.HasPrefix(dirEntry.Name(), ".")):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go"):
			files++
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			check(name, source)
		}
		return nil
	})
	if err != nil || files < 1000 {
		t.Errorf("%d files were checked, %v", files, err)
	}
}

// TestLanguageFindsBannedWords checks that banned words are found in comments, strings and names,
// also across lines.
func TestLanguageFindsBannedWords(t *testing.T) {
	source := "package p\n\n// F returns what was\n// told to it.\nfunc F() string { return \"so \" + \"many\" + \": who asks\" }\n\nfunc TestWhoeverAsks() {}\n\nvar maxTold int\n"
	if got := bannedUses(t, "p.go", []byte(source)); len(got) != 5 {
		t.Errorf("got %q, want 5 uses", got)
	}
}

// bannedUses returns the uses of banned words in a file.
func bannedUses(t *testing.T, name string, source []byte) (out []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	check := func(pos token.Pos, text string) {
		text = persons.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
		for _, word := range banned.FindAllString(text, -1) {
			if !allows(name, text) {
				out = append(out, fmt.Sprintf("%s: %q in %.80q", fset.Position(pos), word, text))
			}
		}
	}
	for _, group := range file.Comments {
		check(group.Pos(), group.Text())
	}
	seen := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if text, ok := stringConstant(n); ok {
				check(n.Pos(), text)
				return false
			}
		case *ast.BasicLit:
			if text, ok := stringConstant(n); ok {
				check(n.Pos(), text)
			}
		case *ast.Ident:
			if !seen[n.Name] { // reported once per file
				seen[n.Name] = true
				check(n.Pos(), splitWords(n.Name))
			}
		}
		return true
	})
	return out
}

// stringConstant returns the value of a string literal or of a sum of them.
func stringConstant(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		remaining, ok := stringConstant(e.X)
		right, too := stringConstant(e.Y)
		return remaining + right, ok && too && e.Op == token.ADD
	}
	return "", false
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// splitWords returns the words of an identifier in camel case.
func splitWords(name string) string { return wordStart.ReplaceAllString(name, "$1 $2") }

func allows(name, text string) bool {
	for _, a := range allowed {
		if a.file == name && strings.Contains(text, a.text) {
			return true
		}
	}
	return false
}

// TestDocumentsAvoidBannedWords checks documents, and the comments of files that configure the
// product.
func TestDocumentsAvoidBannedWords(t *testing.T) {
	root := moduleRoot(t)
	files := 0
	for _, dir := range []string{"docs", "deploy", ".github", "README.md", "CONTRIBUTING.md", "SECURITY.md",
		"CHANGELOG.md", "Makefile"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			document := filepath.Ext(path) == ".md"
			if err != nil || d.IsDir() ||
				strings.HasPrefix(path, filepath.Join(root, "deploy")) && strings.Contains(path, "testdata") {
				return err
			}
			switch filepath.Ext(path) {
			case ".md", ".yaml", ".yml", ".tpl", ".conf", "":
			default:
				return nil
			}
			files++
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for number, line := range strings.Split(string(data), "\n") {
				if !document && !strings.HasPrefix(strings.TrimSpace(line), "#") {
					continue
				}
				if word := banned.FindString(persons.ReplaceAllString(line, "$1")); word != "" {
					t.Errorf("%s:%d: %q in %.80q", path, number+1, word, line)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 {
		t.Errorf("%d files were checked, want at least 50", files)
	}
}
