package writes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/json/jsonpatch"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// maxPatchOperations is the maximum number of operations of a JSON patch. MaxPatch is the maximum
// size of a patch in bytes, and of the data that its copy operations may add.
const (
	maxPatchOperations = 10000
	MaxPatch           = jsonpatch.MaxCopies
)

// Patch is a decoded patch.
type Patch struct {
	typ types.PatchType
	raw []byte
	// ops holds a JSON patch, tree any other patch.
	ops  jsonpatch.Patch
	tree map[string]any
	// unknown holds the errors about unknown and duplicate fields of the patch itself.
	unknown []error
}

// jsonPatchOp holds the fields of a JSON patch operation (RFC 6902). Errors contain its name, as in
// Kubernetes.
type jsonPatchOp struct {
	Op    string `json:"op,omitempty"`
	Path  string `json:"path,omitempty"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// DecodePatch decodes a patch. If strict, it records unknown and duplicate fields.
func DecodePatch(typ types.PatchType, raw []byte, strict bool) (*Patch, error) {
	p := &Patch{typ: typ, raw: raw}
	var err error
	switch typ {
	case types.JSONPatchType:
		err = p.decodeOperations(strict)
	case types.ApplyYAMLPatchType:
		err = p.decodeYAML(strict)
	case types.ApplyCBORPatchType:
		err = p.decodeCBOR()
	default:
		err = p.decodeTree(strict)
	}
	return p, err
}

func (p *Patch) decodeOperations(strict bool) (err error) {
	if err := codec.CheckJSON(p.raw); err != nil {
		return errPatch(err)
	}
	if strict {
		var shown []jsonPatchOp
		if p.unknown, err = kjson.UnmarshalStrict(p.raw, &shown); err != nil {
			return errPatch(errors.New(strings.ReplaceAll(err.Error(), "writes.jsonPatchOp", "handlers.jsonPatchOp")))
		}
		for i, e := range p.unknown {
			p.unknown[i] = fmt.Errorf("json patch %w", e)
		}
	}
	if p.ops, err = jsonpatch.Decode(p.raw); err != nil {
		return errPatch(err)
	}
	if len(p.ops) > maxPatchOperations {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(p.ops)))
	}
	return nil
}

func (p *Patch) decodeTree(strict bool) (err error) {
	if err := codec.CheckJSON(p.raw); err != nil {
		return errPatch(err)
	}
	if strict {
		p.unknown, err = kjson.UnmarshalStrict(p.raw, &p.tree)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(p.raw, &p.tree)
	}
	switch {
	case err != nil:
		return errPatch(err)
	case p.tree == nil: // null
		return errPatch(errors.New("a patch is an object"))
	}
	return nil
}

// decodeYAML decodes the body of an apply. It tries JSON first, which is valid YAML and faster to
// decode. For duplicate keys it returns the messages of the YAML decoder.
func (p *Patch) decodeYAML(strict bool) error {
	if err := codec.CheckJSON(p.raw); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	if twice, err := kjson.UnmarshalStrict(p.raw, &p.tree); err != nil || len(twice) > 0 {
		p.tree = nil
		if err := codec.CheckYAML(p.raw); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
		}
		doc, err := yaml.YAMLToJSONStrict(p.raw)
		if err != nil {
			if strict {
				p.unknown = []error{fmt.Errorf("error converting YAML to JSON: %w", err)}
			}
			doc, err = yaml.YAMLToJSON(p.raw)
		}
		if err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(doc, &p.tree)
		}
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
		}
	}
	if p.tree == nil { // empty or null: an object without a kind
		p.tree = map[string]any{}
	}
	return nil
}

// decodeCBOR decodes the body of an apply. CBOR cannot have duplicate keys.
func (p *Patch) decodeCBOR() error {
	doc, err := codec.CBORToJSON(p.raw)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(doc, &p.tree)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding CBOR: %v", err))
	}
	if p.tree == nil {
		p.tree = map[string]any{}
	}
	return nil
}

// checkMade rejects a patch of a typed object whose lists would need too much memory once decoded.
func (p *Patch) checkMade(c *codec.Codec, of schema.GroupVersionKind, name string) error {
	err := c.CheckTree(p.tree, of)
	if invalid := new(codec.ValueError); errors.As(err, &invalid) {
		return status.InvalidValue(of.GroupKind(), name, invalid.Path, invalid.Reason)
	}
	if err != nil {
		return errPatch(err)
	}
	return nil
}

// Applies reports whether the patch is an apply.
func (p *Patch) Applies() bool {
	return p.typ == types.ApplyYAMLPatchType || p.typ == types.ApplyCBORPatchType
}

func errPatch(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

// patchJSON applies a JSON patch or a merge patch to a document and returns the result as JSON.
func (p *Patch) patchJSON(doc []byte) ([]byte, error) {
	if p.typ == types.JSONPatchType {
		return p.operate(doc)
	}
	out, err := mergeDocument(doc, p.raw)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// operationsAtOnce is how many operations of a JSON patch cost about as much as decoding the
// document. Some operations scan a whole list.
const operationsAtOnce = 16

// weighPatch is weigh for applying a patch to a document. Each operation may scan all of it. Each
// copy may double it, even if a later operation removes the copy.
func (p *Patch) weighPatch(ctx context.Context, doc []byte) error {
	if p.typ != types.JSONPatchType {
		return weighDocument(ctx, doc, 1)
	}
	size := request.WeightOfJSON(doc) + request.WeightOfJSON(p.raw)
	for _, op := range p.ops {
		if op.Kind() == "copy" {
			size = min(2*size, request.MaxBody)
		}
	}
	return weigh(ctx, size*(1+len(p.ops)/operationsAtOnce))
}

// operate applies the operations of a JSON patch.
func (p *Patch) operate(doc []byte) ([]byte, error) {
	out, err := jsonpatch.Apply(doc, p.ops)
	switch {
	case errors.Is(err, jsonpatch.ErrMoved):
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return nil, status.Unprocessable(err)
	}
	return out, nil
}

// perPair is the cost of comparing two list elements, in bytes of a document.
const perPair = 12

// patchTree applies a strategic merge patch to an object. shape is a value of its Go type, whose
// tags define the merge keys.
func (p *Patch) patchTree(ctx context.Context, obj, shape runtime.Object) (out map[string]any, err error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	pairs, err := checkStrategic(p.tree, tree, shape)
	if err != nil {
		return nil, err
	}
	if err := weigh(ctx, perPair*pairs); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil { // not expected after the check above
			out, err = nil, status.Unprocessable(errors.New("the patch cannot be applied"))
		}
	}()
	return p.mergeTree(tree, shape)
}

// mergeTree merges a strategic merge patch into the tree of an object.
func (p *Patch) mergeTree(tree map[string]any, shape runtime.Object) (map[string]any, error) {
	out, err := strategicpatch.StrategicMergeMapPatch(tree, runtime.DeepCopyJSON(p.tree), shape)
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return nil, status.Unprocessable(err)
	}
	// The object itself is valid.
	return nil, status.Unmergeable(err)
}

// invalidPatch returns the 422 error for a patch whose result cannot be decoded.
func invalidPatch(shown string, err error) error {
	return status.Invalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, err.Error())})
}

// yamlPrefixes are the prefixes of strict YAML errors that list several fields.
var yamlPrefixes = []string{"yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n"}

// fieldWarnings splits an error of strict decoding into one warning for each field.
func fieldWarnings(err error) []string {
	text := err.Error()
	for _, prefix := range yamlPrefixes {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			lines := strings.Split(rest, "\n")
			for i := range lines {
				lines[i] = strings.TrimSpace(lines[i])
			}
			return lines
		}
	}
	return []string{text}
}
