package openapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/libs/version"
)

// Other is a group version that another server answers for, and has a v3 document of.
type Other struct {
	GroupVersion schema.GroupVersion
	// Hash of the document, if it is known.
	Hash string
	// Document answers for it.
	Document http.Handler
}

// Swagger is what another server's v2 document says of a group version, as Part makes
// it. A Tag stands for the same text always.
type Swagger struct {
	GroupVersion schema.GroupVersion
	Tag          string
	Text         []byte
}

// Others sets who has the v2 documents of other servers, in order of priority; it is
// asked with each request for the v2 document.
func (s *Service) Others(swaggers func(context.Context) []Swagger) { s.swaggers = swaggers }

// Part is what a v2 document of somebody else says of the paths of a group version,
// with the definitions that they need. It can be merged with others, whatever it is of.
func Part(text []byte, gv schema.GroupVersion) (part []byte, err error) {
	defer func() {
		if v := recover(); v != nil { // the document is anybody's
			part, err = nil, fmt.Errorf("it is no OpenAPI v2 document: %v", v)
		}
	}()
	doc := &spec.Swagger{}
	if err := doc.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	if doc.Paths == nil {
		return nil, errors.New("it has no paths")
	}
	doc = aggregator.FilterSpecByPathsWithoutSideEffects(doc, []string{"/" + apiPath(gv) + "/"})
	out := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: apiTitle, Version: version.Major + "." + version.Minor}},
		Paths: doc.Paths, Definitions: doc.Definitions, Parameters: doc.Parameters,
	}}
	if part, err = out.MarshalJSON(); err != nil {
		return nil, err
	}
	if err := closed(part); err != nil {
		return nil, err
	}
	_, err = v2Proto(part) // the merged document has to have this form too
	return part, err
}

// merged is a v2 document with those of others.
type merged struct {
	of  *document
	key string
	doc *document
}

// v2 is the v2 document with what others say. One that cannot be merged is left out.
func (s *Service) v2(ctx context.Context, snap *snapshot) *document {
	if s.swaggers == nil {
		return snap.v2
	}
	others := s.swaggers(ctx)
	if len(others) == 0 {
		return snap.v2
	}
	var key strings.Builder
	for i := range others {
		fmt.Fprintf(&key, "%s %s\n", others[i].GroupVersion, others[i].Tag)
	}
	s.merging.Lock()
	defer s.merging.Unlock()
	if m := s.merged; m == nil || m.of != snap.v2 || m.key != key.String() {
		s.merged = &merged{snap.v2, key.String(), s.packer.newDocument(s.turns2, func(*Reading) ([]byte, error) { return s.mergeV2(snap.entries, others) }, v2Proto)}
	}
	return s.merged.doc
}

func (s *Service) mergeV2(entries []*entry, others []Swagger) ([]byte, error) {
	doc, err := s.swagger(entries)
	if err != nil {
		return nil, err
	}
	for i := range others {
		merge(doc, others[i].Text)
	}
	return doc.MarshalJSON()
}

// merge puts a part into a document; one that cannot be merged is left out. Of paths
// that both have those of the document stay; definitions and parameters of the same name
// that are different get another one.
func merge(doc *spec.Swagger, part []byte) {
	defer func() { _ = recover() }() // the part is anybody's
	one := &spec.Swagger{}
	if one.UnmarshalJSON(part) == nil {
		_ = aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(doc, one)
	}
}

// closed refuses a document that refers to what is not in it.
func closed(text []byte) error {
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	var walk func(v any) error
	walk = func(v any) error {
		switch t := v.(type) {
		case []any:
			for _, x := range t {
				if err := walk(x); err != nil {
					return err
				}
			}
		case map[string]any:
			if ref, ok := t["$ref"].(string); ok && !leads(doc, ref) {
				return fmt.Errorf("it refers to %q, which it does not have", ref)
			}
			for _, x := range t {
				if err := walk(x); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(doc)
}

// leads tells whether a reference leads to what the document has.
func leads(doc map[string]any, ref string) bool {
	for _, kind := range []string{"definitions", "parameters"} {
		if name, ok := strings.CutPrefix(ref, "#/"+kind+"/"); ok {
			all, _ := doc[kind].(map[string]any)
			_, ok := all[name]
			return ok
		}
	}
	return false
}
