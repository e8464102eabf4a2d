package olderversions

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// Converter converts stored values to the storage version of their resource. It does not change
// after New and is safe for concurrent use.
type Converter struct {
	resources map[schema.GroupResource]*resource
	scheme    string // name of the scheme, for errors
}

// resource is a built-in resource with the versions in which its objects may be stored. Besides the
// storage version, these are the other served versions, because an earlier release may have used one
// of them for storage, and versions that are no longer served.
type resource struct {
	coder *codec.KindCodec
	// current is the storage version. Values of that version start with protobufHead or jsonHead,
	// so that most values need no further parsing.
	current                schema.GroupVersionKind
	protobufHead, jsonHead []byte
	decoders               map[string]decoder // of the other stored versions, by apiVersion
}

// decoder decodes a stored value of one version and converts it to the storage version.
type decoder func(stored []byte) (registry.Object, error)

// New returns a Converter for the stored kinds of a catalog.
func New(catalog *registry.Catalog, objectCodec *codec.Codec) *Converter {
	out := &Converter{resources: map[schema.GroupResource]*resource{}, scheme: objectCodec.Scheme().Name()}
	kinds := map[schema.GroupVersionKind]*registry.Kind{}
	// 1. Add the served versions, which may be newer or older than the storage version.
	for _, kind := range catalog.Kinds() {
		if kind.Virtual {
			continue
		}
		kinds[kind.GVK()] = kind
		r := out.resources[kind.StoredGroupResource()]
		if r == nil {
			r = &resource{coder: objectCodec.ForKind(kind), current: kind.StoredGVK(), decoders: map[string]decoder{}}
			r.protobufHead, r.jsonHead = codec.StoredHeads(r.current)
			out.resources[kind.StoredGroupResource()] = r
		}
		if kind.GVK() != r.current {
			r.decoders[kind.GroupVersion().String()] = servedDecoder(kind)
		}
	}
	// 2. Add the versions that are no longer served.
	for _, r := range out.resources {
		for _, olderVersion := range olderVersions[r.current.GroupKind()] {
			// An older version has its own decoder, or is the same as a served version and uses the
			// decoder of that one.
			decode := olderVersion.decode
			if olderVersion.sameAsServed != (schema.GroupVersion{}) {
				decode = servedDecoder(kinds[olderVersion.sameAsServed.WithKind(r.current.Kind)])
			}
			r.decoders[olderVersion.apiVersion.String()] = decode
		}
	}
	return out
}

// servedDecoder returns the decoder for values of a version that is also served. kind is that version.
func servedDecoder(kind *registry.Kind) decoder {
	return func(stored []byte) (registry.Object, error) {
		obj, ok := kind.New().(registry.Object)
		if !ok {
			return nil, fmt.Errorf("%s is not an API object", kind.GVK())
		}
		if err := codec.DecodeStoredInto(stored, obj); err != nil {
			return nil, err
		}
		if kind.Default != nil {
			kind.Default(obj)
		}
		if kind.Stored.ToStored == nil {
			return obj, nil
		}
		return kind.Stored.ToStored(obj)
	}
}

// Convert converts a stored value of a resource to the storage version. converted is false, and
// value is the stored one, in three cases: the value has the storage version, it belongs to a custom
// resource, or it is invalid and the codec rejects it later. The error is a *codec.UndecodableError.
func (c *Converter) Convert(resource schema.GroupResource, stored []byte) (value []byte, converted bool, err error) {
	r := c.resources[resource]
	if r == nil {
		return stored, false, nil
	}
	if bytes.HasPrefix(stored, r.protobufHead) || bytes.HasPrefix(stored, r.jsonHead) {
		return stored, false, nil
	}
	apiVersion, kind, err := codec.StoredType(stored)
	if err != nil || kind != r.current.Kind || apiVersion == r.current.GroupVersion().String() {
		return stored, false, nil
	}
	if value, err = r.convert(apiVersion, stored, c.scheme); err != nil {
		return nil, false, &codec.UndecodableError{Err: err}
	}
	return value, true, nil
}

// convert decodes a stored value of a version and encodes it in the storage version.
func (r *resource) convert(apiVersion string, stored []byte, scheme string) ([]byte, error) {
	decode := r.decoders[apiVersion]
	if decode == nil {
		return nil, r.unknownVersionError(apiVersion, scheme)
	}
	obj, err := decode(stored)
	if err != nil {
		return nil, fmt.Errorf("stored %s of version %s: %w", r.current.Kind, apiVersion, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return r.coder.EncodeStorageVersion(obj)
}

var errNoVersion = errors.New("Object 'apiVersion' is missing")

// unknownVersionError returns the error for a version that cannot be decoded.
func (r *resource) unknownVersionError(apiVersion, scheme string) error {
	if apiVersion == "" {
		return errNoVersion // unlike the error of Kubernetes, it does not quote the value, which may be secret
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return err
	}
	return runtime.NewNotRegisteredErrForKind(scheme, gv.WithKind(r.current.Kind))
}
