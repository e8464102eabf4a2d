package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// source holds the declarations of a package. Full names have the package path:
// k8s.io/api/core/v1.Pod.
type source struct {
	path    string
	structs []*structure
	enums   map[string]bool   // names of types with the mark +enum
	consts  map[string]string // values of string constants by name
	typed   []constant        // constants with an explicit type
	// linked maps the name of a constant to the full name of the constant that defines its value.
	linked  map[string]string
	aliases []alias
	// swaggerDoc holds the results of the methods SwaggerDoc by the name of the type. They are in
	// variables named map_<type>.
	swaggerDoc map[string]map[string]string
}

// isOwnPackage reports whether the package belongs to this project. The methods SwaggerDoc of its
// types return the full descriptions, so facts.txt need not repeat them.
func (s *source) isOwnPackage() bool { return strings.HasPrefix(s.path, "binnacle/") }

// hasClientVersion reports whether a package contains a group version that is in the scheme of API
// clients. The group versions of discovery are not in it.
func (s *source) hasClientVersion() bool {
	return strings.HasPrefix(s.path, "k8s.io/api/") && !strings.HasPrefix(s.path, "k8s.io/api/apidiscovery/")
}

// structure is a Go struct of an API package.
type structure struct {
	name   string
	doc    string
	fields []field
}

// field is a field of a struct.
type field struct {
	name, json string
	omitempty  bool
	doc        string
}

// constant is a constant with an explicit type, which may be an enum.
type constant struct {
	typ  string // full name of the type
	name string
	text string // value; empty if equals is set
	doc  string
	// equals is the full name of the constant that defines the value, or "".
	equals string
}

// alias is an alias of a type. Both names are full names.
type alias struct {
	name, of string
	enum     bool // the comment of the alias has the mark +enum
}

func keysOf[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

// parse reads the declarations and comments of a package. path is its import path, dir its
// directory, and names are the names of its files. It skips generated files.
func parse(path, dir string, names []string) (*source, error) {
	out := &source{
		path:       path,
		enums:      map[string]bool{},
		consts:     map[string]string{},
		linked:     map[string]string{},
		swaggerDoc: map[string]map[string]string{},
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, ".pb.go") || strings.HasPrefix(name, "zz_") {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	for _, file := range files {
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				out.addDeclaration(file, g)
			}
		}
	}
	return out, nil
}

// addDeclaration adds the types, constants and descriptions in a declaration.
func (s *source) addDeclaration(file *ast.File, genDecl *ast.GenDecl) {
	for _, spec := range genDecl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.addType(file, spec, docOf(genDecl, spec.Doc))
		case *ast.ValueSpec:
			if genDecl.Tok == token.CONST {
				s.addConstants(file, spec, docOf(genDecl, spec.Doc))
			}
			if name, ok := strings.CutPrefix(spec.Names[0].Name, "map_"); ok && genDecl.Tok == token.VAR {
				s.swaggerDoc[name] = stringMap(spec)
			}
		}
	}
}

// docOf returns the comment of a type or constant. own is its own comment. In a declaration without
// parentheses, the comment belongs to the declaration g instead.
func docOf(g *ast.GenDecl, own *ast.CommentGroup) string {
	if own == nil && !g.Lparen.IsValid() {
		own = g.Doc
	}
	return own.Text()
}

// addType adds the declaration of a type: an alias, a struct or an enum.
func (s *source) addType(field *ast.File, typeSpec *ast.TypeSpec, doc string) {
	if typeSpec.Assign.IsValid() {
		if of := s.fullName(field, typeSpec.Type); of != "" {
			s.aliases = append(s.aliases, alias{name: s.path + "." + typeSpec.Name.Name, of: of, enum: len(marks(doc)["enum"]) > 0})
		}
		return
	}
	switch typ := typeSpec.Type.(type) {
	case *ast.StructType:
		declared := &structure{name: typeSpec.Name.Name, doc: doc}
		for _, field := range typ.Fields.List {
			if field.Tag == nil {
				continue
			}
			tag, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				continue
			}
			if parsed := parseField(field, reflect.StructTag(tag)); parsed.json != "" && parsed.json != "-" {
				declared.fields = append(declared.fields, parsed)
			}
		}
		s.structs = append(s.structs, declared)
	default:
		if len(marks(doc)["enum"]) > 0 {
			s.enums[typeSpec.Name.Name] = true
		}
	}
}

// parseField returns a field of a struct. The types of this project have the marks of a field in
// its tag; parseField adds them to the comment.
func parseField(f *ast.Field, tag reflect.StructTag) field {
	name, options, _ := strings.Cut(tag.Get("json"), ",")
	doc := f.Doc.Text()
	for _, mark := range []string{"listType", "listMapKey", "mapType"} {
		if v := tag.Get(mark); v != "" {
			for _, value := range strings.Split(v, ",") {
				doc += "+" + mark + "=" + value + "\n"
			}
		}
	}
	return field{
		name: fieldName(f), json: name, doc: doc,
		omitempty: slices.Contains(strings.Split(options, ","), "omitempty"),
	}
}

// fieldName returns the name of a field, which may be embedded.
func fieldName(field *ast.Field) string {
	if len(field.Names) > 0 {
		return field.Names[0].Name
	}
	switch t := field.Type.(type) {
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// addConstants adds the constants of a declaration whose value is a string or another constant.
func (s *source) addConstants(file *ast.File, spec *ast.ValueSpec, doc string) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			return
		}
		typ, value := spec.Type, spec.Values[i]
		if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 { // a conversion: Type("text")
			typ, value = call.Fun, call.Args[0]
		}
		text, ok := stringLiteral(value)
		if id, isName := value.(*ast.Ident); isName && !ok {
			text, ok = s.consts[id.Name]
		}
		equals := ""
		if ok {
			s.consts[name.Name] = text
		} else if equals = s.fullName(file, value); equals != "" {
			s.linked[name.Name] = equals
		} else {
			continue
		}
		if full := s.fullName(file, typ); full != "" {
			s.typed = append(s.typed, constant{typ: full, name: name.Name, text: text, doc: doc, equals: equals})
		}
	}
}

// fullName returns the full name of a type or constant that an expression in a file names, or ""
// for any other expression.
func (s *source) fullName(file *ast.File, e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return s.path + "." + t.Name
	case *ast.SelectorExpr:
		pkg, ok := t.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err == nil && (i.Name != nil && i.Name.Name == pkg.Name || i.Name == nil && strings.HasSuffix(path, "/"+pkg.Name)) {
				return path + "." + t.Sel.Name
			}
		}
	}
	return ""
}

// stringLiteral returns the value of a string literal, or false for any other expression.
func stringLiteral(e ast.Expr) (string, bool) {
	basicLit, ok := e.(*ast.BasicLit)
	if !ok || basicLit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(basicLit.Value)
	return text, err == nil
}

// stringMap returns the value of a variable whose value is a literal of a map[string]string. It
// returns an empty map for any other variable.
func stringMap(spec *ast.ValueSpec) map[string]string {
	out := map[string]string{}
	if len(spec.Values) != 1 {
		return out
	}
	lit, ok := spec.Values[0].(*ast.CompositeLit)
	if !ok {
		return out
	}
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			key, _ := stringLiteral(pair.Key)
			out[key], _ = stringLiteral(pair.Value)
		}
	}
	return out
}

// defaultValue returns the value of the mark +default as JSON. The value is JSON or
// ref(<constant>).
func (s *source) defaultValue(text string) (string, error) {
	if name, ok := strings.CutPrefix(text, "ref("); ok {
		v, ok := s.consts[strings.TrimSuffix(name, ")")]
		if !ok {
			return "", fmt.Errorf("the default %s is not a constant of the package", text)
		}
		return toJSON(v), nil
	}
	if !json.Valid([]byte(text)) {
		return "", fmt.Errorf("the default %s is not JSON", text)
	}
	return text, nil
}

// marks returns the values of the marks in a comment, by name. A mark is a line "+name" or
// "+name=value".
func marks(doc string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(doc) {
		mark, ok := strings.CutPrefix(strings.TrimSpace(line), "+")
		if !ok || mark == "" {
			continue
		}
		name, value, _ := strings.Cut(mark, "=")
		out[name] = append(out[name], value)
	}
	return out
}

// description returns the part of a comment that is for users. It removes marks, lines with TODO,
// and all text after a line "---". It joins the lines of a paragraph, but keeps paragraphs and
// indented lines.
func description(doc string) string {
	var builder strings.Builder
	separator := "" // to write before the next text
	write := func(s, nextSeparator string) {
		builder.WriteString(separator + s)
		separator = nextSeparator
	}
	for line := range strings.Lines(doc) {
		line = strings.TrimRight(line, "\n ")
		leading := strings.TrimLeft(line, " ")
		switch {
		case line == "---":
			return strings.TrimSpace(builder.String())
		case line == "":
			separator = ""
			write("\n", "\n")
		case strings.HasPrefix(leading, "TODO"), strings.HasPrefix(leading, "+"):
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			separator = ""
			write("\n"+line, "\n")
		default:
			write(line, " ")
		}
	}
	return strings.TrimSpace(builder.String())
}
