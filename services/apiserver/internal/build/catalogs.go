package build

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	names "binnacle/libs/api"
	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/registry"
)

// catalogs holds the built-in kinds.
type catalogs struct {
	// catalog holds all built-in kinds, served those that clients may use. The server itself may
	// use a kind that is not served.
	catalog, served *registry.Catalog
	codec           *codec.Codec
	root            string // prefix of all keys
}

func newCatalogs(b *base, o *config.Options) (*catalogs, error) {
	settings := registry.Settings{
		AllowPrivileged: o.AllowPrivileged, PrimaryFamily: o.PrimaryFamily(),
		StoreJSON: o.Compatibility.StorageMediaType == names.MediaJSON, Gates: b.gates,
	}
	all, err := builtin.Everything(settings)
	if err != nil {
		return nil, err
	}
	gate := func(k *registry.Kind) bool { return k.Gate == "" || b.gates.Enabled(k.Gate) }
	serves, err := o.Compatibility.Emulation().Serves(all, o.RuntimeConfig, gate)
	if err != nil {
		return nil, err
	}
	served, err := all.Only(serves)
	if err != nil {
		return nil, err
	}
	coders, err := codec.New(all, builtin.Scheme())
	if err != nil {
		return nil, err
	}
	return &catalogs{catalog: all, served: served, codec: coders, root: b.root}, nil
}

// stored returns the resources of the built-in kinds by their key prefixes. Of kinds that share a
// prefix, it returns the kind that is stored in its served form.
func (c *catalogs) stored() map[string]schema.GroupResource {
	out := map[string]schema.GroupResource{}
	for _, k := range c.catalog.Kinds() {
		if k.Virtual || k.Stored.To != nil && c.sharesStore(k) {
			continue
		}
		out[apiset.KeyPrefix(c.root, k)] = k.StoredGroupResource()
	}
	return out
}

// sharesStore reports whether another kind is stored under the same prefix.
func (c *catalogs) sharesStore(k *registry.Kind) bool {
	for _, other := range c.catalog.Kinds() {
		if other != k && !other.Virtual && other.Stored.Prefix == k.Stored.Prefix {
			return true
		}
	}
	return false
}

// definable returns a predicate of the resources that definitions may define. It excludes all
// built-in resources, in any version, and resources whose keys would collide with built-in ones.
func (c *catalogs) definable() func(group, resource string) bool {
	builtIn := map[schema.GroupResource]bool{}
	for _, k := range c.catalog.Kinds() {
		builtIn[k.GVR().GroupResource()] = true
	}
	return func(group, resource string) bool {
		return definition.HasOwnPlace(group, resource) && !builtIn[schema.GroupResource{Group: group, Resource: resource}]
	}
}

// resources returns the cached resources, one for each stored kind. Of kinds that share a key
// prefix, it uses the kind that is stored in its served form, because selectors see that form.
func (c *catalogs) resources(gates *features.Gates) []watchcache.Resource {
	var out []watchcache.Resource
	seen := map[string]bool{}
	for _, k := range c.catalog.Kinds() {
		if k.Virtual || seen[k.Stored.Prefix] || k.Stored.To != nil && c.sharesStore(k) {
			continue
		}
		seen[k.Stored.Prefix] = true
		coder, recent := c.codec.Of(k), &watchcache.Recent{}
		r := watchcache.Resource{
			Name: k.GVR().GroupResource().String(), Prefix: apiset.KeyPrefix(c.root, k),
			Attributes: func(key string, value []byte) (watchcache.Attributes, error) {
				a, err := coder.Attributes(value)
				if errors.As(err, new(*codec.ValueError)) { // its text does not name the object
					err = fmt.Errorf("stored value of %s cannot be served: %w", key, err)
				}
				return watchcache.Attributes{
					Namespace: a.Namespace, Name: a.Name, Labels: watchcache.MakeSetLike(recent, a.Labels), Fields: watchcache.MakeFieldsLike(recent, a.Fields),
				}, err
			},
		}
		for _, f := range k.Presentation.Selectable {
			if f.Index {
				r.Index = append(r.Index, f.Label)
			}
		}
		if k.GVR() == definitions() {
			r.Outline, r.Defines, r.Packed = new(definition.Outliner).Unowned, crdinformer.Defines(c.codec, c.root, c.definable(), !gates.Enabled(features.CustomResourceFieldSelectors)), true
		}
		// No part of a secret may enter the value dictionary, which outlives the object.
		r.Verbatim = k.GVR() == corev1.SchemeGroupVersion.WithResource("secrets")
		out = append(out, r)
	}
	return out
}
