package app

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/aggregate"
	apiextensionsv1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/customresource/conversion"
	"binnacle/services/apiserver/internal/customresource/definition"
	"binnacle/services/apiserver/internal/customresource/follow"
	"binnacle/services/apiserver/internal/customresource/kind"
	"binnacle/services/apiserver/internal/customresource/rules"
	"binnacle/services/apiserver/internal/discovery"
	"binnacle/services/apiserver/internal/loopback"
	"binnacle/services/apiserver/internal/openapi"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
)

func definitions() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

// definable tells of the resources that definitions may define: none that is built in,
// in whatever version, and none that would stand where built-in ones do.
func (p *parts) definable() func(group, resource string) bool {
	builtIn := map[schema.GroupResource]bool{}
	for _, k := range p.catalog.Kinds() {
		builtIn[k.GVR().GroupResource()] = true
	}
	return func(group, resource string) bool {
		return definition.HasOwnPlace(group, resource) && !builtIn[schema.GroupResource{Group: group, Resource: resource}]
	}
}

// newKeeper keeps the statuses of the definitions of custom resources, and
// cleans up after those that are deleted.
func (p *parts) newKeeper() *definition.Keeper {
	return definition.NewKeeper(definition.Config{
		Definitions: p.all.Current().Resource(definitions()).Store,
		Client:      definitionStatuses{p.loopback},
		Instances:   &definition.Stored{Store: p.values, Root: p.root(), Now: time.Now},
		Definable:   p.definable(),
		Logger:      p.log, Now: time.Now,
	})
}

// definitionStatuses writes the statuses of definitions as the server itself.
type definitionStatuses struct{ client *loopback.Client }

// PatchStatus implements definition.Client.
func (s definitionStatuses) PatchStatus(ctx context.Context, name string, patch any) error {
	gvr := definitions()
	return s.client.Patch(ctx, loopback.Of(gvr.Group, gvr.Version, gvr.Resource, "").Named(name).Under("status"), patch)
}

// conversions asks the webhooks of definitions.
func (p *parts) conversions() (func(*kind.Definition) kind.Conversion, error) {
	asker, err := conversion.NewAsker(p.services().Resolve, p.ways(), p.calls)
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, asker.Close)
	return func(d *kind.Definition) kind.Conversion {
		if w := conversion.New(asker, d.CustomResourceDefinition); w != nil {
			return w
		}
		return nil
	}, nil
}

// newFollower serves what is defined.
func (p *parts) newFollower(b served.Builder) (*follow.Follower, error) {
	k := p.all.Current().Resource(definitions())
	convert, err := p.conversions()
	if err != nil {
		return nil, err
	}
	compiler := rules.NewCompiler()
	compiler.Metrics = rules.NewMetrics(p.metrics)
	return follow.New(follow.Config{
		Definitions: k.Store, Definable: p.definable(), Maker: &kind.Maker{Rules: compiler, Conversion: convert}, Builder: b,
		Decode: func(stored []byte, revision int64) (*apiextensionsv1.CustomResourceDefinition, error) {
			obj, err := k.Coder.DecodeStored(stored, revision)
			if err != nil {
				return nil, err
			}
			d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				return nil, fmt.Errorf("%T is no definition", obj)
			}
			return d, nil
		},
		Live:     []*served.Live{p.kinds, p.all},
		Swapping: p.storeAsDefined,
		Swapped: func(s follow.Swap) {
			p.described.set(s.All)
			p.registered.set(s.Changed)
			p.typeChecks.set(s)
		},
		Logger: p.log,
	}), nil
}

// settled waits until what was written of definitions is acted on: the keeper
// has given it a status, and requests see what that means.
func (p *parts) settled(ctx context.Context, revision int64) {
	p.keeper.Settled(ctx, revision)
	p.follower.Settled(ctx, revision)
}

// described are the documents about the API, which follow the definitions when
// somebody asks for them.
type described struct {
	docs *discovery.Documents
	spec *openapi.Service
	// foreign are the group versions of others.
	foreign func() []discovery.GroupVersion
	others  func() []openapi.Other

	mu      sync.Mutex
	newest  iter.Seq[*kind.Definition]
	changed bool
}

func newDescribed() *described { return &described{newest: slices.Values[[]*kind.Definition](nil)} }

// serve says where the documents are.
func (d *described) serve(docs *discovery.Documents, spec *openapi.Service, remotes *aggregate.Aggregator) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.docs, d.spec, d.foreign, d.others = docs, spec, remotes.Versions, remotes.Others
	spec.Others(remotes.Swaggers)
}

// foreignChanged tells that others serve something else.
func (d *described) foreignChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = true
}

func (d *described) set(all iter.Seq[*kind.Definition]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.newest, d.changed = all, true
}

// before brings the documents up to date before next answers about the API.
func (d *described) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if op := request.From(r.Context()); op == nil || !op.IsResource {
			d.refresh()
		}
		next.ServeHTTP(w, r)
	})
}

// Priorities of the group versions of custom resources.
const (
	customGroupPriority   = 1000
	customVersionPriority = 100
)

func (d *described) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.changed {
		return
	}
	d.changed = false
	type entry struct {
		kinds []*registry.Kind
		group openapi.Group
		defs  map[string]*kind.Definition
	}
	byVersion, order := map[schema.GroupVersion]*entry{}, []schema.GroupVersion{}
	maker := &kind.Maker{Rules: rules.NewCompiler()}
	for def := range d.newest {
		for _, k := range maker.All(def) {
			gv := k.GroupVersion()
			e := byVersion[gv]
			if e == nil {
				e = &entry{defs: map[string]*kind.Definition{}}
				byVersion[gv] = e
				order = append(order, gv)
			}
			e.kinds, e.defs[k.Kind] = append(e.kinds, k), def
			e.group.Hash += def.Name + "@" + def.ResourceVersion + " "
		}
	}
	var versions []discovery.GroupVersion
	var groups []openapi.Group
	for _, gv := range order {
		e := byVersion[gv]
		versions = append(versions, discovery.GroupVersion{
			Group: gv.Group, Version: gv.Version, GroupPriority: customGroupPriority, VersionPriority: customVersionPriority,
			Resources: resourcesOf(e.kinds), Named: true,
		})
		e.group.GroupVersion, e.group.Kinds = gv, e.kinds
		e.group.Schemas = func(kind string) *spec.Schema { return schemaOf(e.defs[kind], gv.Version) }
		groups = append(groups, e.group)
	}
	d.docs.Replace(append(versions, d.foreign()...))
	d.spec.Replace(groups, d.others())
}

// resourcesOf describes kinds, with their status before their scale.
func resourcesOf(kinds []*registry.Kind) []metav1.APIResource {
	all := discovery.Resources(kinds)
	slices.SortStableFunc(all, func(a, b metav1.APIResource) int {
		x, sub, _ := strings.Cut(a.Name, "/")
		y, other, _ := strings.Cut(b.Name, "/")
		if x != y || sub == "" || other == "" {
			return 0
		}
		return strings.Compare(other, sub)
	})
	return all
}

// schemaOf is the schema of a version in the form of documents about the API;
// nil when there is none.
func schemaOf(d *kind.Definition, version string) *spec.Schema {
	props, err := d.Schema(version)
	if err != nil || props == nil {
		return nil
	}
	raw, err := json.Marshal(props)
	if err != nil {
		return nil
	}
	s := &spec.Schema{}
	if s.UnmarshalJSON(raw) != nil {
		return nil
	}
	return s
}
