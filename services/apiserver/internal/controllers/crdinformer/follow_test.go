package crdinformer_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/definition"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/storage"
)

// prefix is the prefix of the keys of definitions.
const prefix = "/registry/apiextensions.k8s.io/customresourcedefinitions/"

// fakeStore is a store with initial values and a stream of changes.
type fakeStore struct {
	loaded  []storage.KeyValue
	batches chan storage.Batch
	// confirm, if set, returns the newest revision.
	confirm atomic.Pointer[func(at int64) int64]
}

func (f *fakeStore) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: int64(len(f.loaded) + 1)}, page(f.loaded)
}

func (f *fakeStore) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.batches:
			if err := apply(b); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeStore) Progress(context.Context) error { return nil }

func (f *fakeStore) VerifyHistory(_ context.Context, at storage.Position) (int64, error) {
	if confirm := f.confirm.Load(); confirm != nil {
		return (*confirm)(at.Revision), nil
	}
	return at.Revision, nil
}

// fixture is an informer of definitions whose changes a test sends.
type fixture struct {
	t        testing.TB
	coder    *codec.KindCodec
	source   *fakeStore
	live     *apiset.Live
	syncer   *crdinformer.Syncer
	swaps    chan kind.CRDUpdate
	revision int64
	created  map[string]int64 // by key
}

// newFixture loads definitions and starts the informer.
func newFixture(t testing.TB, loaded ...string) *fixture {
	t.Helper()
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	gvr := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	kinds := catalog.Kinds()
	definitionKind := kinds[slices.IndexFunc(kinds, func(definitionKind *registry.Kind) bool { return definitionKind.GVR() == gvr })]
	f := &fixture{
		t:       t,
		coder:   objectCodec.ForKind(definitionKind),
		source:  &fakeStore{batches: make(chan storage.Batch)},
		swaps:   make(chan kind.CRDUpdate, 1),
		created: map[string]int64{},
	}
	for _, body := range loaded {
		f.revision++
		f.source.loaded = append(f.source.loaded, storage.KeyValue{
			Key: f.key(body), Value: f.stored(body), ModRevision: f.revision, CreateRevision: f.revision,
		})
		f.created[f.key(body)] = f.revision
	}
	slices.SortFunc(f.source.loaded, func(attrs, builder storage.KeyValue) int { return strings.Compare(attrs.Key, builder.Key) })
	f.revision++
	definable := func(string, string) bool { return true }
	cache, err := watchcache.New(watchcache.Config{
		Source:          f.source,
		CurrentRevision: f.source,
		ConfirmEvery:    time.Hour,
		Logger:          slog.New(slog.DiscardHandler),
		Resources: []watchcache.ResourceConfig{{
			Name:            gvr.GroupResource().String(),
			Prefix:          prefix,
			Summary:         new(definition.Outliner).WithoutSchemas,
			DefinedResource: crdinformer.DefinitionReader(objectCodec, "/registry", definable, false),
			Packed:          true,
			Attributes: func(_ string, value []byte) (attributes.Attributes, error) {
				attrs, err := f.coder.Attributes(value)
				return attributes.Attributes{Name: attrs.Name}, err
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	builder := apiset.Builder{Codec: objectCodec, Cache: cache, Root: "/registry", Fields: apply.New(catalog, time.Now)}
	f.live = apiset.NewLive(builder.Set(catalog, 0))
	syncer := crdinformer.New(crdinformer.Config{
		Definitions: cache.Store(prefix),
		Maker:       &kind.Maker{Rules: rules.NewCompiler()},
		Definable:   definable,
		Builder:     builder,
		Decode: func(stored []byte, revision int64) (*apiextensionsv1.CustomResourceDefinition, error) {
			obj, err := f.coder.DecodeStored(stored, revision)
			if err != nil {
				return nil, err
			}
			return obj.(*apiextensionsv1.CustomResourceDefinition), nil
		},
		Live: []*apiset.Live{f.live}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	syncer.OnSwapped(func(s kind.CRDUpdate) {
		select {
		case f.swaps <- s:
		case <-t.Context().Done():
		}
	})
	f.syncer = syncer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- cache.Run(ctx) }()
	go func() { done <- syncer.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	return f
}

// stored returns the stored form of a definition.
func (f *fixture) stored(body string) []byte {
	f.t.Helper()
	decoded, err := f.coder.DecodeBody("application/json", []byte(body), true)
	if err != nil {
		f.t.Fatal(err)
	}
	stored, err := f.coder.EncodeStored(decoded.Object.(registry.Object))
	if err != nil {
		f.t.Fatal(err)
	}
	return stored
}

// key returns the key of a definition.
func (f *fixture) key(body string) string {
	decoded, err := f.coder.DecodeBody("application/json", []byte(body), true)
	if err != nil {
		f.t.Fatal(err)
	}
	return prefix + decoded.Object.(registry.Object).GetName()
}

// send sends changed and deleted definitions in one batch.
func (f *fixture) send(bodies []string, deleted ...string) {
	var batch storage.Batch
	for _, body := range bodies {
		f.revision++
		key := f.key(body)
		if f.created[key] == 0 {
			f.created[key] = f.revision
		}
		batch.Events = append(batch.Events,
			storage.Event{Type: storage.Updated, Key: key, Revision: f.revision, CreateRevision: f.created[key], Value: f.stored(body)})
	}
	for _, name := range deleted {
		f.revision++
		delete(f.created, prefix+name)
		batch.Events = append(batch.Events, storage.Event{Type: storage.Deleted, Key: prefix + name, Revision: f.revision})
	}
	batch.Revision = f.revision
	f.source.batches <- batch
}

// waitForSwaps applies swaps until the set contains all sent changes. It returns the changes that the
// swaps report, as "old name>new name", and the names of all definitions.
func (f *fixture) waitForSwaps() (changed []string, all []string) {
	f.t.Helper()
	for {
		update := <-f.swaps
		for _, change := range update.Changed {
			text := func(crd *kind.CRD) string {
				if crd == nil {
					return "-"
				}
				return crd.Name
			}
			changed = append(changed, text(change.Old)+">"+text(change.New))
		}
		for crd := range update.All {
			all = append(all, crd.Name)
		}
		if f.live.Current().Revision() >= f.revision {
			return changed, all
		}
		all = nil
	}
}

// widgets returns the definition of the resource widget<i>s. established is the status of its
// condition. more is appended to the members of its schema.
func widgets(i int, established string, more string) string {
	return fmt.Sprintf(
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widget%[1]ds.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widget%[1]ds","singular":"widget%[1]d","kind":"Widget%[1]d","listKind":"Widget%[1]dList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"%[3]s}}}]},
		"status":{"acceptedNames":{"plural":"widget%[1]ds","singular":"widget%[1]d","kind":"Widget%[1]d","listKind":"Widget%[1]dList"},"storedVersions":["v1"],
		"conditions":[{"type":"Established","status":%[2]q,"lastTransitionTime":null,"reason":"","message":""}]}}`, i,
		established, more)
}

// serves reports whether a set has the resource of the definition widgets(i, …).
func (f *fixture) serves(set *apiset.Set, i int) bool {
	return set.Resource(
		schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("widget%ds", i)},
	) != nil
}

// TestDefinitionsAreAddedAndRemoved checks that initial definitions are served at once. Later
// changes affect only their own definition, and earlier snapshots stay as they are.
func TestDefinitionsAreAddedAndRemoved(t *testing.T) {
	fixture := newFixture(t, widgets(1, "True", ""), widgets(2, "True", ""), widgets(3, "False", ""))
	check := func(wantChanged, wantAll string, served ...int) *apiset.Set {
		t.Helper()
		changed, all := fixture.waitForSwaps()
		if got := strings.Join(changed, " "); got != wantChanged {
			t.Errorf("got changed %q, want %q", got, wantChanged)
		}
		if got := strings.Join(all, " "); got != wantAll {
			t.Errorf("got served %q, want %q", got, wantAll)
		}
		set := fixture.live.Current()
		for i := range 6 {
			if fixture.serves(set, i) != slices.Contains(served, i) {
				t.Errorf("widget%d: got served: %t, want %t", i, fixture.serves(set, i), slices.Contains(served, i))
			}
		}
		return set
	}
	const w1, w2, w3, w4 = "widget1s.example.com", "widget2s.example.com", "widget3s.example.com", "widget4s.example.com"
	first := check("->"+w1+" ->"+w2, w1+" "+w2, 1, 2)
	fixture.send([]string{widgets(4, "True", "")})
	second := check("->"+w4, w1+" "+w2+" "+w4, 1, 2, 4)
	fixture.send([]string{widgets(3, "True", ""), widgets(2, "True", `,"description":"other"`), widgets(5, "False", "")}, w1)
	check(w1+">- "+w2+">"+w2+" ->"+w3, w2+" "+w3+" "+w4, 2, 3, 4)
	fixture.send([]string{widgets(2, "False", "")}, w3)
	check(w2+">- "+w3+">-", w4, 4)
	for i, set := range []*apiset.Set{first, second} {
		if !fixture.serves(set, 1) || !fixture.serves(set, 2) || fixture.serves(set, 3) || fixture.serves(set, 4) != (i == 1) {
			t.Errorf("snapshot %d: got other widgets served later, want it unchanged", i)
		}
	}
}

// BenchmarkDefinition measures the time from a change in the store until a definition is served,
// besides many others.
func BenchmarkDefinition(b *testing.B) {
	for _, count := range []int{200, 3000, 5000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			var definitions []string
			for i := range count {
				definitions = append(definitions, widgets(i, "True", ""))
			}
			fixture := newFixture(b, definitions...)
			fixture.waitForSwaps()
			body := []string{widgets(count, "True", "")}
			b.ReportAllocs()
			for b.Loop() {
				fixture.send(body)
				fixture.skipSwaps()
			}
		})
	}
}

// skipSwaps is waitForSwaps without a result.
func (f *fixture) skipSwaps() {
	for {
		<-f.swaps
		if f.live.Current().Revision() >= f.revision {
			return
		}
	}
}
