package patch

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/status"
)

// Type is a patch type.
type Type struct {
	// Media is the media type of its bodies.
	Media types.PatchType
	// NeedsGoType limits it to kinds with a Go type, whose tags define the merge keys.
	NeedsGoType bool
	// NeedsCBOR limits it to servers that support CBOR.
	NeedsCBOR bool
	// ServerSideApply means that the patch states the fields that its manager wants to own. It
	// creates a missing object, and its result records the ownership of fields.
	ServerSideApply bool

	// decode decodes a body. With strict, the strategy records unknown and duplicate fields.
	decode func(raw []byte, strict bool) (strategy, error)
	// toJSON converts a body. It is nil if bodies are JSON.
	toJSON func(raw []byte) ([]byte, error)
}

// allTypes lists the patch types in the order of OpenAPI documents (specification: "Patch media
// types"). A new patch type is added here.
var allTypes = []*Type{
	{Media: api.MediaJSONPatch, decode: decodeJSONPatch},
	{Media: api.MediaMergePatch, decode: decodeMerge},
	{Media: api.MediaStrategicPatch, decode: decodeStrategic, NeedsGoType: true},
	{Media: api.MediaApplyYAML, decode: decodeApplyYAML, toJSON: yaml.YAMLToJSON, ServerSideApply: true},
	{Media: api.MediaApplyCBOR, decode: decodeApplyCBOR, toJSON: formats.CBORToJSON, ServerSideApply: true, NeedsCBOR: true},
}

// MediaTypes returns the media types of patches that a kind supports. typed reports whether the
// kind has a Go type, cbor whether the server supports CBOR.
func MediaTypes(typed, cbor bool) (media []string) {
	for _, t := range allTypes {
		if (typed || !t.NeedsGoType) && (cbor || !t.NeedsCBOR) {
			media = append(media, string(t.Media))
		}
	}
	return media
}

// typeOf returns the patch type of a media type, or nil.
func typeOf(media types.PatchType) *Type {
	for _, t := range allTypes {
		if t.Media == media {
			return t
		}
	}
	return nil
}

// Decode decodes a patch of a media type. With strict, it records unknown and duplicate fields,
// which Patch.Apply reports. The error is an API error.
func Decode(media types.PatchType, raw []byte, strict bool) (*Patch, error) {
	t := typeOf(media)
	if t == nil {
		return nil, status.PatchType()
	}
	s, err := t.decode(raw, strict)
	if err != nil {
		return nil, err
	}
	return &Patch{Type: t, strategy: s}, nil
}

// Invalid returns a patch of a media type that Decode rejects with an error. Apply returns the
// error, so that errors about the object come first, as in Kubernetes.
func Invalid(media types.PatchType, err error) *Patch {
	return &Patch{Type: typeOf(media), strategy: undecodablePatch{err: err}}
}

// undecodablePatch is the strategy of a patch that cannot be decoded. It returns the decoding
// error.
type undecodablePatch struct{ err error }

func (p undecodablePatch) apply(context.Context, *Target) (registry.Object, error) { return nil, p.err }

// Patch is a decoded patch.
type Patch struct {
	*Type
	strategy strategy
}

// Apply returns the patched value with its type's defaults if the patch is a server-side apply, and
// without new defaults otherwise. Unknown and duplicate fields, in the patch and in its result, are
// rejected, reported as warnings, or ignored, as Target.FieldValidation requires.
func (p *Patch) Apply(ctx context.Context, t *Target) (registry.Object, error) {
	return p.strategy.apply(ctx, t)
}

// JSON returns the body of a patch as JSON. The body was decoded before without an error.
func JSON(media types.PatchType, raw []byte) ([]byte, error) {
	if t := typeOf(media); t != nil && t.toJSON != nil {
		return t.toJSON(raw)
	}
	return raw, nil
}
