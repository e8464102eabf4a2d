package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	names "binnacle/libs/api"
	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/writes"
)

func (p *parts) buildKinds(context.Context) (err error) {
	settings := registry.Settings{
		AllowPrivileged: p.options.AllowPrivileged, PrimaryFamily: p.options.PrimaryFamily(),
		StoreJSON: p.options.Compatibility.StorageMediaType == names.MediaJSON, Gates: p.options.Features,
	}
	if p.catalog, err = builtin.Everything(settings); err != nil {
		return err
	}
	gate := func(k *registry.Kind) bool { return k.Gate == "" || p.options.Features.Enabled(k.Gate) }
	serves, err := p.options.Compatibility.Emulation().Serves(p.catalog, p.options.RuntimeConfig, gate)
	if err != nil {
		return err
	}
	if p.served, err = p.catalog.Only(serves); err != nil {
		return err
	}
	p.codec, err = codec.New(p.catalog, builtin.Scheme())
	return err
}

// serveKinds creates the API sets that requests see.
func (p *parts) serveKinds() (err error) {
	p.fields = apply.New(p.catalog, time.Now)
	b := apiset.Builder{Codec: p.codec, Cache: p.cache, Elsewhere: p.overrideCaches(), Root: p.root(), Fields: p.fields}
	all := b.Set(p.catalog, 0)
	p.allKinds, p.kinds = apiset.NewLive(all), apiset.NewLive(all.Only(p.served))
	p.client = &internalclient.Client{Doer: &internalclient.Server{
		Kinds: p.allKinds, Cache: p.cache, Codec: p.codec, Writes: func() *writes.Writer { return p.writes }, Logger: p.log, Audit: p.audit.auditor,
		Metrics: internalclient.NewMetrics(p.metrics), Traces: p.traces,
	}}
	p.pruneSeries()
	p.typeChecks = p.newTypeChecks()
	if p.definitionInformer, err = p.newDefinitionInformer(b); err != nil {
		return err
	}
	p.definitionInformer.OnSwapping(p.updateStorageVersions)
	p.definitionInformer.OnSwapped(func(s crdinformer.Swap) {
		p.documents.set(s.Changed)
		p.customVersions.set(s.Changed, s.Complete)
		p.typeChecks.set(s)
	})
	return nil
}

// resources returns the cached resources, one for each stored kind. Of kinds that share a key
// prefix, it uses the kind that is stored in its served form, because selectors see that form.
func (p *parts) resources() []watchcache.Resource {
	var out []watchcache.Resource
	seen := map[string]bool{}
	for _, k := range p.catalog.Kinds() {
		if k.Virtual || seen[k.Stored.Prefix] || k.Stored.To != nil && p.sharesStore(k) {
			continue
		}
		seen[k.Stored.Prefix] = true
		coder, recent := p.codec.Of(k), &watchcache.Recent{}
		r := watchcache.Resource{
			Name: k.GVR().GroupResource().String(), Prefix: apiset.KeyPrefix(p.root(), k),
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
		for _, f := range k.Shown.Selectable {
			if f.Index {
				r.Index = append(r.Index, f.Label)
			}
		}
		if k.GVR() == definitions() {
			r.Outline, r.Defines, r.Packed = new(definition.Outliner).Unowned, crdinformer.Defines(p.codec, p.root(), p.definable(), !p.options.Features.Enabled(features.CustomResourceFieldSelectors)), true
		}
		// No part of a secret may enter the value dictionary, which outlives the object.
		r.Verbatim = k.GVR() == corev1.SchemeGroupVersion.WithResource("secrets")
		out = append(out, r)
	}
	return out
}

// sharesStore reports whether another kind is stored under the same prefix.
func (p *parts) sharesStore(k *registry.Kind) bool {
	for _, other := range p.catalog.Kinds() {
		if other != k && !other.Virtual && other.Stored.Prefix == k.Stored.Prefix {
			return true
		}
	}
	return false
}
