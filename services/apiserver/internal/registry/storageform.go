package registry

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StorageForm describes the stored form of a kind.
type StorageForm struct {
	// Prefix is the key prefix below the root, without a leading or trailing slash, such as "pods",
	// "minions", "services/specs".
	Prefix string
	// Version is the group version of the stored form; the zero value means the served one.
	Version schema.GroupVersion
	// New returns the stored Go type. ToStored and FromStored convert. All are nil if the stored
	// form is the served one, or differs from it only in the version's name.
	New        func() runtime.Object
	ToStored   func(served Object) (Object, error)
	FromStored func(stored Object) (Object, error)
	// JSON stores objects as JSON, as Kubernetes does with a few groups.
	JSON bool
	// LazyField, if set, avoids decoding a large part of objects.
	LazyField *LazyField
	// HasTTL marks kinds whose objects live for the server's event TTL.
	HasTTL bool
}

// StoredGroupResource returns the resource of the stored form. It is the same for kinds of two
// groups with the same storage prefix.
func (k *Kind) StoredGroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.StoredGVK().Group, Resource: k.Resource}
}

// GroupKind returns the kind as messages name it: with the group of the stored form.
func (k *Kind) GroupKind() schema.GroupKind { return k.StoredGVK().GroupKind() }

// StoredGVK returns the group, version and kind of the stored form.
func (k *Kind) StoredGVK() schema.GroupVersionKind {
	if k.Stored.Version.Empty() {
		return k.GVK()
	}
	return k.Stored.Version.WithKind(k.Kind)
}

// LazyField describes the lazily decoded field of kinds that are stored as JSON and have a large
// part that few requests need. That part is copied between texts, or decoded without reflection. If
// the object has an unusual layout, a function returns false for ok, and the caller decodes the
// full object. The functions are safe for concurrent use.
type LazyField struct {
	// ToServed returns the JSON of a stored object in the served version. encode does the same for
	// a stored text without its large part.
	ToServed func(stored []byte, encode func(stored []byte) ([]byte, error)) (served []byte, ok bool)
	// WithPlaceholders returns a stored text with placeholders in place of the large part. The text
	// can be decoded, changed and encoded. restore puts the part back into the encoded text.
	WithPlaceholders func(stored []byte) (data []byte, restore func(stored []byte) ([]byte, bool), ok bool)
	// Decode decodes an object from the JSON of the served version. decode decodes a text without
	// its large part. It returns an error for unknown or duplicate fields.
	Decode func(data []byte, decode func(data []byte) (Object, error)) (o Object, ok bool)
}
