package patch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/jsonpatch"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// MaxOperations is the maximum number of operations of a JSON patch.
const MaxOperations = 10000

// jsonPatch is a decoded JSON patch.
type jsonPatch struct {
	raw     []byte
	ops     jsonpatch.Patch
	unknown []error
}

// jsonPatchOp holds the fields of a JSON patch operation (RFC 6902). The type name appears in error
// messages; Kubernetes' type has the same name.
type jsonPatchOp struct {
	Op    string `json:"op,omitempty"`
	Path  string `json:"path,omitempty"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// decodeJSONPatch decodes a JSON patch. With strict, it records unknown fields of operations.
func decodeJSONPatch(raw []byte, strict bool) (strategy, error) {
	if err := doccheck.CheckJSON(raw); err != nil {
		return nil, undecodableError(err)
	}
	decoded := &jsonPatch{raw: raw}
	if strict {
		unknown, err := unknownOperationFields(raw)
		if err != nil {
			return nil, undecodableError(err)
		}
		decoded.unknown = unknown
	}
	var err error
	decoded.ops, err = jsonpatch.Decode(raw)
	if err != nil && strict {
		return nil, undecodableError(err)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(decoded.ops) > MaxOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d",
			MaxOperations, len(decoded.ops)))
	}
	return decoded, nil
}

// unknownOperationFields returns an error for each unknown or duplicate field of the operations.
func unknownOperationFields(raw []byte) ([]error, error) {
	var ops []jsonPatchOp
	unknown, err := kjson.UnmarshalStrict(raw, &ops)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "patch.jsonPatchOp", "handlers.jsonPatchOp"))
	}
	for i, e := range unknown {
		unknown[i] = fmt.Errorf("json patch %w", e)
	}
	return unknown, nil
}

// apply applies the operations to the JSON of the object.
func (p *jsonPatch) apply(ctx context.Context, t *Target) (registry.Object, error) {
	return t.changeJSON(ctx, p.unknown, p.estimateCost, p.applyTo)
}

// operationsPerDecoding is the number of operations that cost about as much as decoding the
// document. Some operations scan a whole list.
const operationsPerDecoding = 16

// estimateCost returns the cost of applyTo. Each operation may scan all of the document. Each copy
// may double it, even if a later operation removes the copy.
func (p *jsonPatch) estimateCost(doc []byte) int {
	size := request.WeightOfJSON(doc) + request.WeightOfJSON(p.raw)
	for _, op := range p.ops {
		if op.Kind() == "copy" {
			size = min(2*size, request.MaxBody)
		}
	}
	return size * (1 + len(p.ops)/operationsPerDecoding)
}

// applyTo returns the document after the operations.
func (p *jsonPatch) applyTo(doc []byte) ([]byte, error) {
	out, err := jsonpatch.Apply(doc, p.ops)
	switch {
	case errors.Is(err, jsonpatch.ErrMoved):
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return nil, status.Unprocessable(err)
	}
	return out, nil
}
