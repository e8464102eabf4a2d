package patch

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// mergePatch is a JSON merge patch.
type mergePatch struct {
	doc     *tape.Doc
	unknown []error
}

// decodeMerge decodes a JSON merge patch. With strict, it rejects a patch that is no object and
// records duplicate fields. Otherwise, a list replaces the object, as in Kubernetes.
func decodeMerge(raw []byte, strict bool) (strategy, error) {
	if err := doccheck.CheckJSON(raw); err != nil {
		return nil, undecodableError(err)
	}
	doc, err := tape.Parse(raw)
	switch {
	case err == nil && doc.Kind(tape.Root) == tape.Object:
	case strict && (err != nil || doc.Kind(tape.Root) != tape.Null):
		return nil, undecodableError(notObjectError(raw, err))
	case err != nil || doc.Kind(tape.Root) != tape.Array:
		return nil, apierrors.NewBadRequest("Invalid JSON Patch")
	}
	p := &mergePatch{doc: doc}
	if strict {
		for _, path := range doc.Duplicates() {
			p.unknown = append(p.unknown, fmt.Errorf("duplicate field %q", path))
		}
	}
	return p, nil
}

// notObjectError returns the error of a patch that is no JSON object, as the decoder of Kubernetes
// words it. cause is the error of the parser, if it is not valid JSON.
func notObjectError(raw []byte, cause error) error {
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return err
	}
	return cause
}

// apply merges into a copy of the object if the patch has no repeated keys and changes only what
// can be merged directly. Otherwise it merges the JSON of both. The results are the same.
func (p *mergePatch) apply(ctx context.Context, t *Target) (registry.Object, error) {
	if err := t.checkError(t.Codec.Checks.CheckPart(p.doc.Raw(), t.GVK)); err != nil {
		return nil, err
	}
	if p.doc.Clean() && p.doc.Kind(tape.Root) == tape.Object {
		if obj, ok := p.applyDirectly(t); ok {
			return obj, nil
		}
	}
	return t.changeJSON(ctx, p.unknown, request.WeightOfJSON, p.applyTo)
}

// applyDirectly merges into a copy of the object. It returns false if that is not possible.
func (p *mergePatch) applyDirectly(t *Target) (registry.Object, bool) {
	if u, ok := t.Object.(*unstructured.Unstructured); ok {
		return mergeLabels(u, p.doc, t.Defaulted)
	}
	obj, ok := mergeObject(t.Object, p.doc)
	if ok && t.Convertible != nil && t.Convertible(obj) != nil {
		return nil, false // decoding it reports the error
	}
	return obj, ok
}

// applyTo returns the document after the merge.
func (p *mergePatch) applyTo(doc []byte) ([]byte, error) {
	out, err := mergeDocument(doc, p.doc)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}
