package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// gate is the state of a feature gate in one version.
type gate struct {
	stage      string
	on, locked bool
}

func (g gate) String() string {
	out := g.stage + ", off"
	if g.on {
		out = g.stage + ", on"
	}
	if g.locked {
		out += ", locked"
	}
	return out
}

// gateTable reads feature gates from tables in Go source.
type gateTable struct {
	// names holds the values of string constants; tables name gates by constants.
	names map[string]string
	gates map[string]gate
}

// readGates reads the tables in files, as they are in a minor version of Kubernetes. Gates that
// this version does not have are omitted. Constants may be declared in any of the files.
func readGates(files []string, minor int) (map[string]gate, error) {
	t := &gateTable{names: map[string]string{}, gates: map[string]gate{}}
	var parsed []*ast.File
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
		ast.Inspect(f, t.recordConstants)
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			if pair, ok := n.(*ast.KeyValueExpr); ok {
				if value, ok := pair.Value.(*ast.CompositeLit); ok {
					t.add(pair.Key, value, minor)
				}
			}
			return true
		})
	}
	if len(t.gates) == 0 {
		return nil, fmt.Errorf("no feature gates found in %q", files)
	}
	return t.gates, nil
}

// recordConstants keeps the values of string constants. It is a function for ast.Inspect.
func (t *gateTable) recordConstants(node ast.Node) bool {
	spec, ok := node.(*ast.ValueSpec)
	if !ok {
		return true
	}
	for i, name := range spec.Names {
		if i < len(spec.Values) {
			value := spec.Values[i]
			if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 { // Feature("Name")
				value = call.Args[0]
			}
			if literal, ok := text(value); ok {
				t.names[name.Name] = literal
			}
		}
	}
	return false
}

// add adds a gate. Its value is a spec, or a list of specs by version, the oldest first.
func (t *gateTable) add(key ast.Expr, value *ast.CompositeLit, minor int) {
	name, literal := text(key)
	if !literal {
		expr := types.ExprString(key)
		name = t.names[expr[strings.LastIndex(expr, ".")+1:]]
	}
	if name == "" {
		return
	}
	if g, _, ok := specOf(value); ok {
		t.gates[name] = g
	}
	for _, e := range value.Elts {
		if spec, ok := e.(*ast.CompositeLit); ok {
			if g, since, ok := specOf(spec); ok && since <= minor {
				t.gates[name] = g
			}
		}
	}
}

// specOf reads one spec, and the minor version from which it holds. It reports whether the literal
// is a spec.
func specOf(spec *ast.CompositeLit) (g gate, since int, ok bool) {
	g.stage = "GA"
	for _, e := range spec.Elts {
		pair, keyed := e.(*ast.KeyValueExpr)
		if !keyed {
			continue
		}
		value := types.ExprString(pair.Value)
		switch types.ExprString(pair.Key) {
		case "Default":
			g.on = value == "true"
		case "Stage", "PreRelease":
			g.stage, ok = value[strings.LastIndex(value, ".")+1:], true
		case "Locked", "LockToDefault":
			g.locked = value == "true"
		case "Version": // version.MustParse("1.34")
			if call, called := pair.Value.(*ast.CallExpr); called && len(call.Args) == 1 {
				number, _ := text(call.Args[0])
				if minor, err := strconv.Atoi(strings.TrimPrefix(number, "1.")); err == nil {
					since = minor
				}
			}
		}
	}
	return g, since, ok
}
