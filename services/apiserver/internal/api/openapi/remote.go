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

// RemoteGroupVersion is a group version for which another server has a v3 document.
type RemoteGroupVersion struct {
	GroupVersion schema.GroupVersion
	// Hash is the hash of the document, if it is known.
	Hash string
	// Document handles requests for the document.
	Document http.Handler
}

// RemoteV2Document is the part of another server's v2 document for a group version.
type RemoteV2Document struct {
	GroupVersion schema.GroupVersion
	Tag          string // changes with Text
	Text         []byte // result of ExtractGroupVersion
}

// SetRemoteV2Documents sets the function that returns the v2 documents of other servers, in order
// of priority. The Service calls it for each request for the v2 document. SetRemoteV2Documents must
// be called before ServeHTTP.
func (s *Service) SetRemoteV2Documents(remoteV2 func(context.Context) []RemoteV2Document) {
	s.remoteV2 = remoteV2
}

// ExtractGroupVersion returns a v2 document with the paths of a group version in data, another
// server's v2 document, and with the definitions to which they refer. The result is valid and can
// be merged with other documents. data is untrusted.
func ExtractGroupVersion(data []byte, groupVersion schema.GroupVersion) (part []byte, err error) {
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
	doc = aggregator.FilterSpecByPathsWithoutSideEffects(doc, []string{"/" + apiPath(groupVersion) + "/"})
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
	_, err = v2Proto(part) // otherwise the merged document would have no protobuf form
	return part, err
}

// mergedDocument is the own v2 document merged with the v2 documents of other servers.
type mergedDocument struct {
	base *document // own document
	key  string    // identifies the other documents
	doc  *document
}

// mergedV2 returns the v2 document of a snapshot merged with the v2 documents of other servers. It
// caches the last result.
func (s *Service) mergedV2(ctx context.Context, snap *snapshot) *document {
	if s.remoteV2 == nil {
		return snap.v2
	}
	others := s.remoteV2(ctx)
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
		build := func(*SchemaCache) ([]byte, error) { return s.buildMergedV2(snap.entries, others) }
		s.merged = &mergedDocument{base: snap.v2, key: key.String(), doc: s.packer.newDocument(s.v2Slots, build, v2Proto)}
	}
	return s.merged.doc
}

// buildMergedV2 returns the JSON of the v2 document of entries, merged with the documents of other
// servers.
func (s *Service) buildMergedV2(entries []*entry, others []RemoteV2Document) ([]byte, error) {
	doc, err := s.newV2Spec(entries)
	if err != nil {
		return nil, err
	}
	for i := range others {
		mergeInto(doc, others[i].Text)
	}
	return doc.MarshalJSON()
}

// mergeInto merges part, another v2 document, into doc. Paths in doc take precedence. Different
// definitions and parameters with the same name are renamed. If part cannot be merged, mergeInto
// leaves doc as it is.
func mergeInto(doc *spec.Swagger, part []byte) {
	defer func() { _ = recover() }() // the part is untrusted
	parsed := &spec.Swagger{}
	if parsed.UnmarshalJSON(part) == nil {
		_ = aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(doc, parsed)
	}
}

// checkReferences returns an error if a v2 document contains a reference without a target.
func checkReferences(data []byte) error {
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	var check func(v any) error
	check = func(v any) error {
		switch t := v.(type) {
		case []any:
			for _, x := range t {
				if err := check(x); err != nil {
					return err
				}
			}
		case map[string]any:
			if ref, ok := t["$ref"].(string); ok && !resolves(doc, ref) {
				return fmt.Errorf("unresolved reference %q", ref)
			}
			for _, x := range t {
				if err := check(x); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return check(doc)
}

// resolves reports whether a reference has a target in a v2 document: a definition or a parameter.
func resolves(doc map[string]any, ref string) bool {
	for _, section := range []string{"definitions", "parameters"} {
		if name, ok := strings.CutPrefix(ref, "#/"+section+"/"); ok {
			targets, _ := doc[section].(map[string]any)
			_, ok := targets[name]
			return ok
		}
	}
	return false
}
