// Command mutate disables the conditions of packages, one at a time, and reports those that no test
// detects (docs/dev/testing.md). In a && b, each operand becomes true. In a || b, each becomes
// false. A single condition becomes false, and so does a && b as a whole. In a return statement a
// condition becomes true and false. The source files are not changed: the compiler gets an overlay.
//
//	go build -C e2e -o /tmp/mutate ./cmd/mutate
//	/tmp/mutate [-run REGEXP] [-tests "PACKAGES"] [-file REGEXP] DIR...
//
// It must run in the module of the mutated packages.
//
// The tests are those of the package in DIR, and of the packages named in -tests. All mutants of a
// package are built into one binary, and an environment variable activates one of them. A mutant
// runs only with the tests that reach it, the fastest first. The exit code is 1 if a mutant
// survived.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// mutation is a condition of a file and the value that replaces it.
type mutation struct {
	file        string
	line        int
	begin, end  int    // offsets of the condition in the file
	replacement string // "true" or "false"
	text        string // source text of the condition
}

func main() {
	run := flag.String("run", "", "regular expression that selects tests by name")
	tests := flag.String("tests", "", "further packages whose tests run")
	files := flag.String("file", "", "regular expression that selects source files by name")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "mutate: no folder is given")
		os.Exit(2)
	}
	survived := 0
	for _, dir := range flag.Args() {
		n, err := mutatePackage(dir, *run, strings.Fields(*tests), *files)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutate:", dir+":", err)
			os.Exit(2)
		}
		survived += n
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// mutatePackage tests all mutants of the package in dir and prints those that survive. run selects
// tests, files selects source files, and tests names further packages with tests.
func mutatePackage(dir, run string, tests []string, files string) (survived int, err error) {
	// 1. Find the conditions to mutate.
	selectedFiles, err := regexp.Compile(files)
	if err != nil {
		return 0, err
	}
	selectedTests, err := regexp.Compile(run)
	if err != nil {
		return 0, err
	}
	sources, found, err := readFolder(dir, selectedFiles)
	if err != nil {
		return 0, err
	}

	// 2. Build the test binaries, which contain all mutants.
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	overlay, err := writeOverlay(temp, dir, sources, found)
	if err != nil {
		return 0, err
	}
	var all []*test
	for i, pkg := range append([]string{"./" + filepath.ToSlash(filepath.Clean(dir))}, tests...) {
		more, err := buildTests(filepath.Join(temp, fmt.Sprintf("tests%d", i)), pkg, overlay, selectedTests)
		if err != nil {
			return 0, err
		}
		all = append(all, more...)
	}

	// 3. Run each test without a mutant, to learn its duration and the mutants that it reaches.
	for _, t := range all {
		if err := t.runWithoutMutant(filepath.Join(temp, "reached")); err != nil {
			return 0, err
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].duration < all[j].duration })

	// 4. Run each mutant with the tests that reach it, until one detects it.
	for id, m := range found {
		reached, killed := runMutant(id, all)
		if killed {
			continue
		}
		survived++
		if reached {
			fmt.Printf("%s:%d: no test detects the mutation of %s\n", m.file, m.line, m.text)
		} else {
			fmt.Printf("%s:%d: no test reaches %s\n", m.file, m.line, m.text)
		}
	}
	fmt.Printf("%s: %d mutants, %d killed, %d survived\n", dir, len(found), len(found)-survived, survived)
	return survived, nil
}

// runMutant runs the mutant with an ID until a test detects it. reached reports whether a test
// evaluates the mutated condition, killed whether a test fails because of the mutation.
func runMutant(id int, tests []*test) (reached, killed bool) {
	for _, t := range tests {
		if !t.reaches[id] {
			continue
		}
		reached = true
		if t.detects(id) {
			return true, true
		}
	}
	return reached, false
}

// readFolder returns the sources of a folder by path, and their mutations.
func readFolder(dir string, wanted *regexp.Regexp) (map[string][]byte, []mutation, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	sources, found := map[string][]byte{}, []mutation(nil)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || !wanted.MatchString(filepath.Base(path)) {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		more, err := findMutations(path, source)
		if err != nil {
			return nil, nil, err
		}
		sources[path], found = source, append(found, more...)
	}
	if len(sources) == 0 {
		return nil, nil, errors.New("no source files")
	}
	return sources, found, nil
}

// findMutations returns the mutations of a file in source order.
func findMutations(path string, source []byte) ([]mutation, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, 0)
	if err != nil {
		return nil, err
	}
	var out []mutation
	add := func(expr ast.Expr, becomes string) {
		start, end := set.Position(expr.Pos()).Offset, set.Position(expr.End()).Offset
		out = append(out, mutation{
			file:        path,
			line:        set.Position(expr.Pos()).Line,
			begin:       start,
			end:         end,
			replacement: becomes,
			text:        string(source[start:end]),
		})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			addOperands(n.Cond, "false", add)
		case *ast.SwitchStmt:
			if n.Tag != nil {
				return true
			}
			for _, c := range n.Body.List {
				for _, expr := range c.(*ast.CaseClause).List {
					addOperands(expr, "false", add)
				}
			}
		case *ast.ReturnStmt:
			for _, expr := range n.Results {
				if !isCondition(expr) {
					continue
				}
				addOperands(expr, "false", add)
				if !isCompound(expr) { // the operands of a compound condition become true already
					add(expr, "true")
				}
			}
		}
		return true
	})
	return out, nil
}

// addOperands adds the leaves of a condition, and the conjunctions and disjunctions that are
// operands of the other kind or stand alone. becomes is the value that replaces an operand that
// stands alone. In a || b each operand becomes false, so replacing the whole would test nothing
// new.
func addOperands(expr ast.Expr, becomes string, add func(ast.Expr, string)) {
	switch e := expr.(type) {
	case *ast.ParenExpr:
		addOperands(e.X, becomes, add)
		return
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND:
			if becomes == "false" {
				add(e, becomes)
			}
			addOperands(e.X, "true", add)
			addOperands(e.Y, "true", add)
			return
		case token.LOR:
			if becomes == "true" {
				add(e, becomes)
			}
			addOperands(e.X, "false", add)
			addOperands(e.Y, "false", add)
			return
		}
	}
	add(expr, becomes)
}

// isCompound reports whether an expression is a conjunction or a disjunction.
func isCompound(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && (b.Op == token.LAND || b.Op == token.LOR)
}

// isCondition reports whether an expression is syntactically a condition.
func isCondition(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return isCondition(e.X)
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			return true
		}
	}
	return false
}
