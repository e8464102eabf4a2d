package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// apiPackage holds the types of one API group version.
type apiPackage struct {
	group, version string
	types          map[string]*apiType
	// constants holds string constants of declared types: the name, and the type with the value.
	constants map[string]string
}

// apiType is a struct. The numbers are minor versions of Kubernetes 1, or 0.
type apiType struct {
	kind                            bool
	introduced, deprecated, removed int
	fields                          map[string]field // by the name in JSON
}

type field struct{ typ, defaultValue, gate string }

// versionFolder matches the folders of API versions.
var versionFolder = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// readTypes reads the packages GROUP/VERSION below a folder, by their path.
func readTypes(dir string) (map[string]*apiPackage, error) {
	packages := map[string]*apiPackage{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || !versionFolder.MatchString(entry.Name()) {
			return err
		}
		pkg, err := readPackage(path)
		if err == nil && len(pkg.types) > 0 {
			packages[filepath.Base(filepath.Dir(path))+"/"+entry.Name()] = pkg
		}
		return err
	})
	return packages, err
}

func readPackage(dir string) (*apiPackage, error) {
	pkg := &apiPackage{version: filepath.Base(dir), types: map[string]*apiType{}, constants: map[string]string{}}
	files, err := sourceFiles(dir)
	if err != nil {
		return nil, err
	}
	var parsed []*ast.File
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	for _, f := range parsed {
		for _, d := range f.Decls {
			if decl, ok := d.(*ast.GenDecl); ok {
				pkg.declare(decl)
			}
		}
	}
	for _, f := range parsed {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				pkg.recordLifecycle(fn)
			}
		}
	}
	return pkg, nil
}

// declare adds structs and string constants.
func (p *apiPackage) declare(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if structType, ok := s.Type.(*ast.StructType); ok && s.Name.IsExported() {
				p.types[s.Name.Name] = structOf(structType)
			}
		case *ast.ValueSpec:
			for i, name := range s.Names {
				if g.Tok != token.CONST || i >= len(s.Values) {
					continue
				}
				value, ok := text(s.Values[i])
				if typ, named := s.Type.(*ast.Ident); ok && named && typ.Name != "string" {
					p.constants[name.Name] = typ.Name + " " + strconv.Quote(value)
				}
				if ok && name.Name == "GroupName" {
					p.group = value
				}
			}
		}
	}
}

// recordLifecycle records what a generated method of a kind returns.
func (p *apiPackage) recordLifecycle(fn *ast.FuncDecl) {
	if fn.Recv == nil || len(fn.Recv.List) != 1 || fn.Body == nil || len(fn.Body.List) != 1 {
		return
	}
	kind := p.types[strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*")]
	ret, ok := fn.Body.List[0].(*ast.ReturnStmt)
	if kind == nil || !ok || len(ret.Results) != 2 {
		return
	}
	minor, err := strconv.Atoi(types.ExprString(ret.Results[1]))
	if err != nil {
		return
	}
	switch fn.Name.Name {
	case "APILifecycleIntroduced":
		kind.introduced = minor
	case "APILifecycleDeprecated":
		kind.deprecated = minor
	case "APILifecycleRemoved":
		kind.removed = minor
	}
}

// structOf describes a struct. A kind has the metadata of its type and of its objects.
func structOf(s *ast.StructType) *apiType {
	t := &apiType{fields: map[string]field{}}
	var typeMeta, objectMeta bool
	for _, f := range s.Fields.List {
		typ := types.ExprString(f.Type)
		name, _, _ := strings.Cut(jsonTag(f), ",")
		if name == "" && len(f.Names) == 0 {
			name = "(embedded " + typ + ")"
		}
		typeMeta = typeMeta || strings.HasSuffix(typ, "TypeMeta")
		objectMeta = objectMeta || strings.HasSuffix(typ, "ObjectMeta")
		if name != "" && name != "-" {
			t.fields[name] = field{typ: typ, defaultValue: marker(f, "+default="), gate: marker(f, "+featureGate=")}
		}
	}
	t.kind = typeMeta && objectMeta
	return t
}

func jsonTag(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	tag, _ := strconv.Unquote(f.Tag.Value)
	return reflect.StructTag(tag).Get("json")
}

// marker returns the word that follows prefix at the start of a comment line.
func marker(f *ast.Field, prefix string) string {
	for line := range strings.Lines(f.Doc.Text()) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			value, _, _ = strings.Cut(value, " ")
			return value
		}
	}
	return ""
}

// text returns the value of a string literal.
func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(lit.Value)
	return value, err == nil
}
