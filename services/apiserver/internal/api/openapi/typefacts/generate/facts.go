package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// sources returns the packages whose types OpenAPI documents may describe.
func sources() []string {
	return []string{
		"k8s.io/api/...",
		"k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/apimachinery/pkg/apis/meta/v1",
		"k8s.io/apimachinery/pkg/apis/meta/v1beta1",
		"k8s.io/apimachinery/pkg/runtime",
		"k8s.io/apimachinery/pkg/util/intstr",
		"k8s.io/apimachinery/pkg/version",
		"binnacle/services/apiserver/internal/registry/apis/apiextensions/...",
		"binnacle/services/apiserver/internal/registry/apis/apiregistration/...",
	}
}

// collectFacts reads all sources and returns the contents of facts.txt. Package typefacts documents
// its format.
func collectFacts() ([]byte, error) {
	list := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles"}, sources()...)...)
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(list.Args, " "), err)
	}
	var all []*source
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
		}
		if err := dec.Decode(&p); err != nil {
			return nil, err
		}
		s, err := parse(p.ImportPath, p.Dir, p.GoFiles)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *source) int { return strings.Compare(a.path, b.path) })

	w := &writer{enums: collectEnums(all)}
	w.writeLine("# Written by go generate from the source of these packages.")
	for _, s := range all {
		if group, ok := s.consts["GroupName"]; ok && s.hasClientVersion() {
			w.writeLine("version", group, path.Base(s.path))
		}
	}
	for _, s := range all {
		if err := w.writePackage(s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return w.Bytes(), nil
}

// writer collects the lines of facts.txt.
type writer struct {
	bytes.Buffer
	enums map[string][]value // result of collectEnums
}

// writeLine writes a line whose fields are separated by tabs.
func (w *writer) writeLine(parts ...string) { w.WriteString(strings.Join(parts, "\t") + "\n") }

// writePackage writes the facts about the types of a package.
func (w *writer) writePackage(pkgSource *source) error {
	for _, name := range slices.Sorted(keysOf(pkgSource.enums)) {
		if len(w.enums[pkgSource.path+"."+name]) == 0 {
			continue
		}
		w.writeLine("enum", pkgSource.path+"."+name)
		for _, v := range w.enums[pkgSource.path+"."+name] {
			w.writeLine("value", v.text, v.description)
		}
	}
	for _, structure := range pkgSource.structs {
		if !isDescribed(pkgSource.path, structure.name) {
			continue
		}
		if err := w.writeType(pkgSource, structure); err != nil {
			return fmt.Errorf("%s: %w", structure.name, err)
		}
	}
	return nil
}

// isDescribed reports whether documents describe a type. It excludes the other types of packages
// that are only partly described.
func isDescribed(pkg, name string) bool {
	switch path.Base(pkg) {
	case "runtime":
		return name == "RawExtension"
	case "resource":
		return pkg != "k8s.io/apimachinery/pkg/api/resource" || name == "Quantity"
	}
	return true
}

// writeType writes the facts about a type and its fields. It omits a type without facts.
func (w *writer) writeType(s *source, t *structure) error {
	swaggerDoc := s.swaggerDoc[t.name]
	facts, err := typeFacts(t, swaggerDoc[""], s.isOwnPackage())
	if err != nil {
		return err
	}
	lines := [][]string{append([]string{"type", s.path + "." + t.name}, facts...)}
	for _, field := range t.fields {
		fieldFacts, err := s.fieldFacts(field, swaggerDoc[field.json])
		if err != nil {
			return fmt.Errorf("%s: %w", field.json, err)
		}
		if len(fieldFacts) > 0 {
			lines = append(lines, append([]string{"field", field.json}, fieldFacts...))
		}
	}
	if len(facts) > 0 || len(lines) > 1 {
		for _, l := range lines {
			w.writeLine(l...)
		}
	}
	return nil
}

// typeFacts returns the facts about a struct type, "<name>=<value>". swaggerDoc is the description
// that its method SwaggerDoc returns. own reports whether the type belongs to this project.
func typeFacts(t *structure, swaggerDoc string, own bool) (facts []string, err error) {
	if d := description(t.doc); d != swaggerDoc && !own {
		facts = append(facts, "doc="+toJSON(d))
	}
	if k := marks(t.doc)["structType"]; len(k) > 0 {
		facts = append(facts, "mapType="+k[0])
	}
	u, err := unionOf(t)
	if u != "" {
		facts = append(facts, "union="+u)
	}
	return facts, err
}

// fieldFacts returns the facts about a field, "<name>=<value>". swaggerDoc is the description that
// the method SwaggerDoc of its struct returns.
func (s *source) fieldFacts(described field, swaggerDoc string) ([]string, error) {
	var facts []string
	fieldMarks := marks(described.doc)
	if d := description(described.doc); d != swaggerDoc && !s.isOwnPackage() {
		facts = append(facts, "doc="+toJSON(d))
	}
	for _, m := range []struct{ mark, fact string }{
		{mark: "listType", fact: "listType"}, {mark: "mapType", fact: "mapType"}, {mark: "structType", fact: "mapType"},
	} {
		if v := fieldMarks[m.mark]; len(v) > 0 {
			facts = append(facts, m.fact+"="+v[0])
		}
	}
	if v := fieldMarks["listMapKey"]; len(v) > 0 {
		facts = append(facts, "keys="+strings.Join(v, ","))
	}
	if v := fieldMarks["default"]; len(v) > 0 {
		text, err := s.defaultValue(v[0])
		if err != nil {
			return nil, err
		}
		facts = append(facts, "default="+text)
	}
	if strings.Contains("\n"+described.doc, "\n---\n") {
		facts = append(facts, "cut=true")
	}
	switch {
	case len(fieldMarks["required"]) > 0 && described.omitempty:
		facts = append(facts, "required=true")
	case len(fieldMarks["optional"]) > 0 && len(fieldMarks["required"]) == 0 && !described.omitempty:
		facts = append(facts, "required=false")
	}
	return facts, nil
}

// unionOf returns the value of the extension x-kubernetes-unions for a type with the mark +union,
// as JSON. It returns "" for any other type.
func unionOf(t *structure) (string, error) {
	if len(marks(t.doc)["union"]) == 0 {
		return "", nil
	}
	members := map[string]any{}
	u := map[string]any{"fields-to-discriminateBy": members}
	for _, field := range t.fields {
		if len(marks(field.doc)["unionDiscriminator"]) > 0 {
			u["discriminator"] = field.json
		} else {
			members[field.json] = field.name
		}
	}
	data, err := json.Marshal([]any{u})
	return string(data), err
}

// toJSON returns a string as JSON on one line.
func toJSON(s string) string {
	var builder strings.Builder
	e := json.NewEncoder(&builder)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	return strings.TrimSuffix(builder.String(), "\n")
}
