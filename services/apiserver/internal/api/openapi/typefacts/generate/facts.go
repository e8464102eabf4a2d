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

// collectFacts reads all sources and returns the facts that the package typefacts reads. Each line
// holds fields separated by tabs:
//
//	version group version           a version that clients use
//	enum type                       a type with the values of the following lines
//	value value description
//	type type fact=value…           a struct type
//	field name fact=value…          a field of the type above
//
// The facts of a type are doc, mapType and union. The facts of a field are doc, cut (the comment
// continues below a line ---), listType, mapType, keys, default and required.
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

	w := &writer{enums: enums(all)}
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

// writer writes facts as lines.
type writer struct {
	bytes.Buffer
	enums map[string][]value
}

func (w *writer) writeLine(parts ...string) { w.WriteString(strings.Join(parts, "\t") + "\n") }

// writePackage writes the facts about the types of a package.
func (w *writer) writePackage(s *source) error {
	for _, name := range slices.Sorted(keysOf(s.enums)) {
		if len(w.enums[s.path+"."+name]) == 0 {
			continue
		}
		w.writeLine("enum", s.path+"."+name)
		for _, v := range w.enums[s.path+"."+name] {
			w.writeLine("value", v.text, v.description)
		}
	}
	for _, t := range s.structs {
		if !isDescribed(s.path, t.name) {
			continue
		}
		if err := w.writeType(s, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// isDescribed reports whether documents describe a type. It excludes the other types of packages that
// are only partly described.
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
	facts, err := typeDescription(t, swaggerDoc[""], s.isOwnPackage())
	if err != nil {
		return err
	}
	lines := [][]string{append([]string{"type", s.path + "." + t.name}, facts...)}
	for _, f := range t.fields {
		fieldFacts, err := s.fieldFacts(f, swaggerDoc[f.json])
		if err != nil {
			return fmt.Errorf("%s: %w", f.json, err)
		}
		if len(fieldFacts) > 0 {
			lines = append(lines, append([]string{"field", f.json}, fieldFacts...))
		}
	}
	if len(facts) > 0 || len(lines) > 1 {
		for _, l := range lines {
			w.writeLine(l...)
		}
	}
	return nil
}

// typeDescription returns the facts about a type. swaggerDoc is the description that the type
// carries at run time.
func typeDescription(t *structure, swaggerDoc string, own bool) (facts []string, err error) {
	if d := description(t.doc); d != swaggerDoc && !own {
		facts = append(facts, "doc="+quoted(d))
	}
	if k := tags(t.doc)["structType"]; len(k) > 0 {
		facts = append(facts, "mapType="+k[0])
	}
	u, err := union(t)
	if u != "" {
		facts = append(facts, "union="+u)
	}
	return facts, err
}

// fieldFacts returns the facts about a field.
func (s *source) fieldFacts(f field, swaggerDoc string) ([]string, error) {
	var facts []string
	markers := tags(f.doc)
	if d := description(f.doc); d != swaggerDoc && !s.isOwnPackage() {
		facts = append(facts, "doc="+quoted(d))
	}
	for _, m := range []struct{ mark, fact string }{
		{"listType", "listType"}, {"mapType", "mapType"}, {"structType", "mapType"},
	} {
		if v := markers[m.mark]; len(v) > 0 {
			facts = append(facts, m.fact+"="+v[0])
		}
	}
	if v := markers["listMapKey"]; len(v) > 0 {
		facts = append(facts, "keys="+strings.Join(v, ","))
	}
	if v := markers["default"]; len(v) > 0 {
		text, err := s.defaultValue(v[0])
		if err != nil {
			return nil, err
		}
		facts = append(facts, "default="+text)
	}
	if strings.Contains("\n"+f.doc, "\n---\n") {
		facts = append(facts, "cut=true")
	}
	switch {
	case len(markers["required"]) > 0 && f.omitempty:
		facts = append(facts, "required=true")
	case len(markers["optional"]) > 0 && len(markers["required"]) == 0 && !f.omitempty:
		facts = append(facts, "required=false")
	}
	return facts, nil
}

// union returns the union that a type declares, as JSON.
func union(t *structure) (string, error) {
	if len(tags(t.doc)["union"]) == 0 {
		return "", nil
	}
	members := map[string]any{}
	u := map[string]any{"fields-to-discriminateBy": members}
	for _, f := range t.fields {
		if len(tags(f.doc)["unionDiscriminator"]) > 0 {
			u["discriminator"] = f.json
		} else {
			members[f.json] = f.name
		}
	}
	data, err := json.Marshal([]any{u})
	return string(data), err
}

// quoted returns a string as JSON on one line.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}
