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

// RemoteGroupVersion is a group version that another server serves and documents in v3.
type RemoteGroupVersion struct {
	GroupVersion schema.GroupVersion
	// Hash is the hash of the document, if it is known.
	Hash string
	// Document serves the document.
	Document http.Handler
}

// RemoteV2Document is the part of another server's v2 document for a group version, as returned by
// ExtractGroupVersion. Equal tags mean equal texts.
type RemoteV2Document struct {
	GroupVersion schema.GroupVersion
	Tag          string
	Text         []byte
}

// SetRemoteV2Documents sets the function that returns the v2 documents of other servers, in order
// of priority. It is called for each request for the v2 document.
func (s *Service) SetRemoteV2Documents(swaggers func(context.Context) []RemoteV2Document) {
	s.swaggers = swaggers
}

// ExtractGroupVersion returns the paths of a group version in another server's v2 document, with
// the definitions to which they refer. The result can be merged with other documents.
func ExtractGroupVersion(data []byte, gv schema.GroupVersion) (part []byte, err error) {
	defer func() {
		if v := recover(); v != nil { // the document is untrusted
			part, err = nil, fmt.Errorf("not an OpenAPI v2 document: %v", v)
		}
	}()
	doc := &spec.Swagger{}
	if err := doc.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if doc.Paths == nil {
		return nil, errors.New("document has no paths")
	}
	doc = aggregator.FilterSpecByPathsWithoutSideEffects(doc, []string{"/" + apiPath(gv) + "/"})
	out := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: apiTitle, Version: version.Major + "." + version.Minor}},
		Paths: doc.Paths, Definitions: doc.Definitions, Parameters: doc.Parameters,
	}}
	if part, err = out.MarshalJSON(); err != nil {
		return nil, err
	}
	if err := checkReferences(part); err != nil {
		return nil, err
	}
	_, err = v2Proto(part) // the merged document must have this form too
	return part, err
}

// mergedDocument is the v2 document merged with the v2 documents of other servers.
type mergedDocument struct {
	base *document
	key  string
	doc  *document
}

// mergedV2 returns the v2 document merged with the v2 documents of other servers. It omits
// documents that cannot be merged.
func (s *Service) mergedV2(ctx context.Context, snap *snapshot) *document {
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
	s.mergeMu.Lock()
	defer s.mergeMu.Unlock()
	if m := s.merged; m == nil || m.base != snap.v2 || m.key != key.String() {
		s.merged = &mergedDocument{snap.v2, key.String(), s.packer.newDocument(s.v2Slots, func(*SchemaCache) ([]byte, error) { return s.mergeV2(snap.entries, others) }, v2Proto)}
	}
	return s.merged.doc
}

// mergeV2 returns the v2 document of the entries, merged with the documents of other servers.
func (s *Service) mergeV2(entries []*entry, others []RemoteV2Document) ([]byte, error) {
	doc, err := s.swagger(entries)
	if err != nil {
		return nil, err
	}
	for i := range others {
		merge(doc, others[i].Text)
	}
	return doc.MarshalJSON()
}

// merge merges a part into a document. It omits a part that cannot be merged. The document's paths
// take precedence. Different definitions and parameters with the same name are renamed.
func merge(doc *spec.Swagger, part []byte) {
	defer func() { _ = recover() }() // the part is untrusted
	parsed := &spec.Swagger{}
	if parsed.UnmarshalJSON(part) == nil {
		_ = aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(doc, parsed)
	}
}

// checkReferences rejects a document with unresolved references.
func checkReferences(data []byte) error {
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
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
			if ref, ok := t["$ref"].(string); ok && !resolves(doc, ref) {
				return fmt.Errorf("unresolved reference %q", ref)
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

// resolves reports whether a reference resolves in the document.
func resolves(doc map[string]any, ref string) bool {
	for _, kind := range []string{"definitions", "parameters"} {
		if name, ok := strings.CutPrefix(ref, "#/"+kind+"/"); ok {
			named, _ := doc[kind].(map[string]any)
			_, ok := named[name]
			return ok
		}
	}
	return false
}
