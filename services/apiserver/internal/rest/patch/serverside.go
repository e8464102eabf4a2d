package patch

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/fieldvalidation"
)

// applyPatch is the body of a server-side apply.
type applyPatch struct {
	raw     []byte
	tree    map[string]any
	unknown []error
	cbor    bool
}

// decodeApplyYAML tries JSON first, which is valid YAML and faster to decode. For duplicate keys it
// records the messages of the YAML decoder.
func decodeApplyYAML(raw []byte, strict bool) (strategy, error) {
	invalid := func(err error) error { return apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err)) }
	if err := doccheck.CheckJSON(raw); err != nil {
		return nil, invalid(err)
	}
	decoded := &applyPatch{raw: raw}
	duplicates, err := kjson.UnmarshalStrict(raw, &decoded.tree)
	if err != nil || len(duplicates) > 0 {
		decoded.tree = nil
		if err := doccheck.CheckYAML(raw); err != nil {
			return nil, invalid(err)
		}
		doc, err := yaml.YAMLToJSONStrict(raw)
		if err != nil {
			if strict {
				decoded.unknown = []error{fmt.Errorf("error converting YAML to JSON: %w", err)}
			}
			if doc, err = yaml.YAMLToJSON(raw); err != nil {
				return nil, invalid(fmt.Errorf("error converting YAML to JSON: %w", err))
			}
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &decoded.tree); err != nil {
			return nil, invalid(fmt.Errorf("error unmarshaling JSON: while decoding JSON: %w", err))
		}
	}
	if decoded.tree == nil { // empty or null: an object without a kind
		decoded.tree = map[string]any{}
	}
	return decoded, nil
}

// decodeApplyCBOR decodes CBOR, which cannot have duplicate keys.
func decodeApplyCBOR(raw []byte, _ bool) (strategy, error) {
	decoded := &applyPatch{raw: raw, cbor: true}
	doc, err := formats.CBORToJSON(raw)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(doc, &decoded.tree)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding CBOR: %v", err))
	}
	if decoded.tree == nil {
		decoded.tree = map[string]any{}
	}
	return decoded, nil
}

// apply reports only duplicate fields. Unknown fields of the type are rejected by the merge.
func (p *applyPatch) apply(ctx context.Context, t *Target) (registry.Object, error) {
	if err := t.checkError(t.Codec.Checks.CheckTree(p.tree, t.GVK)); err != nil {
		return nil, err
	}
	if err := t.Estimate(ctx, t.Cost(p.raw, p.cbor)); err != nil {
		return nil, err
	}
	obj, err := t.Merge(ctx, p.tree)
	if err != nil {
		return nil, err
	}
	return obj, fieldvalidation.ReportUnknown(ctx, t.FieldValidation, p.unknown, func(error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", p.unknown[0]))
	})
}
