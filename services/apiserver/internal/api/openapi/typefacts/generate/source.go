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

// source is a parsed package.
type source struct {
	path    string
	structs []*structure
	enums   map[string]bool   // string types that list their values
	consts  map[string]string // values of string constants
	typed   []constant
	// linked maps the name of a constant to the full name of the constant that it equals.
	linked map[string]string
	// aliases holds the aliases of string types.
	aliases []alias
	// swaggerDoc holds the documentation that types carry at run time, by type name.
	swaggerDoc map[string]map[string]string
}

// isOwnPackage reports whether the package belongs to this project. Its types carry their full
// documentation.
func (s *source) isOwnPackage() bool { return strings.HasPrefix(s.path, "binnacle/") }

// hasClientVersion reports whether a package has a group version that API clients use. Discovery
// has a scheme of its own.
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

// constant is a constant of a type that may be an enum. typ is the type's full name. If it equals
// another constant, equals is the full name of that constant and text is empty.
type constant struct {
	typ, name, text, doc, equals string
}

// alias is another name of a type. Both are full names.
type alias struct {
	name, of string
	enum     bool // the comment of the alias has the mark
}

func keysOf[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

// parse reads the declarations and comments of a package.
func parse(path, dir string, names []string) (*source, error) {
	s := &source{path: path, enums: map[string]bool{}, consts: map[string]string{}, linked: map[string]string{}, swaggerDoc: map[string]map[string]string{}}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, ".pb.go") || strings.HasPrefix(name, "zz_") {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.declared(f, g)
			}
		}
	}
	return s, nil
}

// declared reads the types and constants of a declaration.
func (s *source) declared(f *ast.File, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.typeSpec(f, spec, docOf(g, spec.Doc))
		case *ast.ValueSpec:
			if g.Tok == token.CONST {
				s.constants(f, spec, docOf(g, spec.Doc))
			}
			if name, ok := strings.CutPrefix(spec.Names[0].Name, "map_"); ok && g.Tok == token.VAR {
				s.swaggerDoc[name] = texts(spec)
			}
		}
	}
}

// docOf returns the comment of a declaration. A declaration without parentheses has the comment
// before it.
func docOf(g *ast.GenDecl, own *ast.CommentGroup) string {
	if own == nil && !g.Lparen.IsValid() {
		own = g.Doc
	}
	return own.Text()
}

// typeSpec reads the declaration of a type.
func (s *source) typeSpec(f *ast.File, t *ast.TypeSpec, doc string) {
	if t.Assign.IsValid() {
		if of := s.fullName(f, t.Type); of != "" {
			s.aliases = append(s.aliases, alias{name: s.path + "." + t.Name.Name, of: of, enum: len(tags(doc)["enum"]) > 0})
		}
		return
	}
	switch is := t.Type.(type) {
	case *ast.StructType:
		st := &structure{name: t.Name.Name, doc: doc}
		for _, f := range is.Fields.List {
			if f.Tag == nil {
				continue
			}
			tag, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				continue
			}
			if is := asField(f, reflect.StructTag(tag)); is.json != "" && is.json != "-" {
				st.fields = append(st.fields, is)
			}
		}
		s.structs = append(s.structs, st)
	default:
		if len(tags(doc)["enum"]) > 0 {
			s.enums[t.Name.Name] = true
		}
	}
}

// asField returns a field. The types of this project have their marks in tags.
func asField(f *ast.Field, tag reflect.StructTag) field {
	name, options, _ := strings.Cut(tag.Get("json"), ",")
	doc := f.Doc.Text()
	for _, mark := range []string{"listType", "listMapKey", "mapType"} {
		if v := tag.Get(mark); v != "" {
			for _, one := range strings.Split(v, ",") {
				doc += "+" + mark + "=" + one + "\n"
			}
		}
	}
	return field{
		name: fieldName(f), json: name, doc: doc,
		omitempty: slices.Contains(strings.Split(options, ","), "omitempty"),
	}
}

// fieldName returns the name of a field, which may be embedded.
func fieldName(f *ast.Field) string {
	if len(f.Names) > 0 {
		return f.Names[0].Name
	}
	switch t := f.Type.(type) {
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// constants collects the constants that are strings or equal another constant.
func (s *source) constants(f *ast.File, spec *ast.ValueSpec, doc string) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			return
		}
		typ, at := spec.Type, spec.Values[i]
		if call, ok := at.(*ast.CallExpr); ok && len(call.Args) == 1 {
			typ, at = call.Fun, call.Args[0]
		}
		text, ok := literal(at)
		if id, is := at.(*ast.Ident); is && !ok {
			text, ok = s.consts[id.Name]
		}
		equals := ""
		if ok {
			s.consts[name.Name] = text
		} else if equals = s.fullName(f, at); equals != "" {
			s.linked[name.Name] = equals
		} else {
			continue
		}
		if full := s.fullName(f, typ); full != "" {
			s.typed = append(s.typed, constant{typ: full, name: name.Name, text: text, doc: doc, equals: equals})
		}
	}
}

// fullName returns the full name of a type or constant, or "" for any other expression.
func (s *source) fullName(f *ast.File, t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return s.path + "." + t.Name
	case *ast.SelectorExpr:
		in, ok := t.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err == nil && (i.Name != nil && i.Name.Name == in.Name || i.Name == nil && strings.HasSuffix(path, "/"+in.Name)) {
				return path + "." + t.Sel.Name
			}
		}
	}
	return ""
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// texts returns a map of strings from its literal.
func texts(spec *ast.ValueSpec) map[string]string {
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
			key, _ := literal(pair.Key)
			out[key], _ = literal(pair.Value)
		}
	}
	return out
}

// defaultValue returns a default as JSON. It resolves the name of a constant.
func (s *source) defaultValue(text string) (string, error) {
	if name, ok := strings.CutPrefix(text, "ref("); ok {
		v, ok := s.consts[strings.TrimSuffix(name, ")")]
		if !ok {
			return "", fmt.Errorf("the default %s is not a constant of the package", text)
		}
		return quoted(v), nil
	}
	if !json.Valid([]byte(text)) {
		return "", fmt.Errorf("the default %s is not JSON", text)
	}
	return text, nil
}

// tags returns the marks of a comment: lines of +name or +name=value.
func tags(doc string) map[string][]string {
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

// description returns the part of a comment for users. Paragraphs and indented lines are kept. Text
// after three dashes, marks and TODOs are for developers and removed.
func description(doc string) string {
	var b strings.Builder
	pending := "" // separator between the last text and the next
	write := func(s, then string) {
		b.WriteString(pending + s)
		pending = then
	}
	for line := range strings.Lines(doc) {
		line = strings.TrimRight(line, "\n ")
		leading := strings.TrimLeft(line, " ")
		switch {
		case line == "---":
			return strings.TrimSpace(b.String())
		case line == "":
			pending = ""
			write("\n", "\n")
		case strings.HasPrefix(leading, "TODO"), strings.HasPrefix(leading, "+"):
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			pending = ""
			write("\n"+line, "\n")
		default:
			write(line, " ")
		}
	}
	return strings.TrimSpace(b.String())
}
