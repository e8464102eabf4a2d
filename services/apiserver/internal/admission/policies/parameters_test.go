package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
)

// fed is a store that tells what it is given.
type fed struct {
	batches chan storage.Batch
	applied chan error
}

func (fed) Load(context.Context, func([]storage.KeyValue) error) (storage.Place, error) {
	return storage.Place{Revision: 1}, nil
}

func (f fed) Follow(ctx context.Context, _ storage.Place, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.batches:
			f.applied <- apply(b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (fed) Progress(context.Context) error                        { return nil }
func (fed) Confirm(context.Context, storage.Place) (int64, error) { return 1, nil }

// shelf has config maps that parameters are made of.
type shelf struct {
	t        *testing.T
	kind     *apiset.Resource
	source   fed
	params   *Parameters
	revision int64
	weighed  int // bytes, since it was read last
	busy     bool
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	catalog, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{t: t, source: fed{make(chan storage.Batch), make(chan error)}, revision: 1}
	k := catalog.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	cache, err := watchcache.New(watchcache.Config{Source: s.source, Newest: s.source, Resources: []watchcache.Resource{{
		Name: k.Resource, Prefix: apiset.KeyPrefix("/registry", k),
		Attributes: func(_ string, value []byte) (watchcache.Attributes, error) {
			a, err := c.Of(k).Attributes(value)
			return watchcache.Attributes{Namespace: a.Namespace, Name: a.Name, Labels: watchcache.MakeSet(a.Labels)}, err
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = cache.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	s.kind = apiset.Builder{Codec: c, Cache: cache, Root: "/registry"}.Set(catalog, 0).Resource(k.GVR())
	s.params, err = NewParameters(func(schema.GroupVersionKind) *apiset.Resource { return s.kind }, func(context.Context, *apiset.Resource) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes a config map with a text of so many bytes; of none, it is deleted.
func (s *shelf) put(name string, size int) {
	s.t.Helper()
	s.revision++
	ev := storage.Event{Type: storage.Deleted, Key: s.kind.Key("default", name), Revision: s.revision}
	if size > 0 {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"set": "one"}}, Data: map[string]string{"text": strings.Repeat("x", size)}}
		value, err := s.kind.Coder.EncodeStored(m)
		if err != nil {
			s.t.Fatal(err)
		}
		ev.Type, ev.CreateRevision, ev.Value = storage.Updated, 2, value
		if _, there := s.kind.Store.Get(ev.Key); !there {
			ev.Type, ev.CreateRevision = storage.Created, s.revision
		}
	}
	s.source.batches <- storage.Batch{Events: []storage.Event{ev}, Revision: s.revision}
	if err := <-s.source.applied; err != nil {
		s.t.Fatal(err)
	}
}

// ask for the parameter of a name, or for all without one: how many bytes their texts have; -1 when others are
// worked on.
func (s *shelf) ask(name string) (size int) {
	s.t.Helper()
	ref := &admissionv1.ParamRef{Name: name}
	if name == "" {
		ref.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"set": "one"}}
	}
	ctx := requestinfo.Carry(s.t.Context(), &requestinfo.Info{Verb: "create"})
	request.SetWeigh(ctx, func(n int) bool { s.weighed += n; return !s.busy })
	found, err := s.params.of(ctx, s.kind, referenceOf(ref), "default")
	if s.busy && apierrors.IsTooManyRequests(err) {
		return -1
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range found {
		tree, err := found[i].tree(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		size += len(tree["data"].(map[string]any)["text"].(string))
	}
	return size
}

// kept are the names of those that are kept decoded, those first that leave first.
func (s *shelf) kept() (names []string) {
	s.t.Helper()
	bytes := 0
	for _, k := range s.params.trees.byKey.Keys() {
		v, _ := s.params.trees.byKey.Peek(k)
		bytes += v.size
		names = append(names, strings.TrimPrefix(k.object, s.kind.Prefix+"default/"))
	}
	if bytes != s.params.trees.bytes || bytes > keptBytes || len(names) > keptTrees {
		s.t.Errorf("%d parameters of %d bytes are kept, %d are counted", len(names), bytes, s.params.trees.bytes)
	}
	return names
}

func TestKeptParameters(t *testing.T) {
	const small, large = 1000, largestKept + 1
	type step struct {
		put  string // is written, of so many bytes, or deleted
		size int
		ask  string // is asked for, where nothing is written
		// got is how many bytes that has, weighed how many are waited for with a turn at least.
		got, weighed int
		kept         []string
	}
	for name, steps := range map[string][]step{
		"small ones":           {{put: "a", size: small}, {put: "b", size: small + 1}, {ask: "a", got: small, kept: []string{"a"}}, {ask: "", got: 2*small + 1, kept: []string{"a", "b"}}, {ask: "a", got: small, kept: []string{"b", "a"}}},
		"large ones":           {{put: "a", size: large}, {put: "b", size: small}, {ask: "a", got: large, weighed: large}, {ask: "", got: large + small, weighed: large, kept: []string{"b"}}},
		"changed":              {{put: "a", size: small}, {ask: "a", got: small, kept: []string{"a"}}, {put: "a", size: 2 * small, kept: []string{"a"}}, {ask: "a", got: 2 * small, kept: []string{"a"}}},
		"grown":                {{put: "a", size: small}, {ask: "a", got: small, kept: []string{"a"}}, {put: "a", size: large, kept: []string{"a"}}, {ask: "a", got: large, weighed: large}},
		"gone, and looked for": {{put: "a", size: small}, {ask: "a", got: small, kept: []string{"a"}}, {put: "a", kept: []string{"a"}}, {ask: "a"}},
		"gone, and others come": {
			{put: "a", size: small}, {put: "b", size: small}, {ask: "", got: 2 * small, kept: []string{"a", "b"}}, {put: "a", kept: []string{"a", "b"}}, {put: "b", kept: []string{"a", "b"}},
			{put: "c", size: small, kept: []string{"a", "b"}}, {ask: "", got: small, kept: []string{"c"}},
		},
		"made anew": {{put: "a", size: small}, {ask: "a", got: small, kept: []string{"a"}}, {put: "a", kept: []string{"a"}}, {put: "a", size: 2 * small, kept: []string{"a"}}, {ask: "a", got: 2 * small, kept: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			for i, st := range steps {
				s.weighed = 0
				if st.put != "" {
					s.put(st.put, st.size)
				} else if got := s.ask(st.ask); got != st.got {
					t.Errorf("step %d: %d bytes are found, want %d", i, got, st.got)
				}
				if s.weighed < st.weighed || st.weighed == 0 && s.weighed > 0 {
					t.Errorf("step %d: %d bytes are weighed, want %d", i, s.weighed, st.weighed)
				}
				if got := s.kept(); !slices.Equal(got, st.kept) {
					t.Errorf("step %d: %q are kept, want %q", i, got, st.kept)
				}
			}
		})
	}
}

// TestKeptParametersAreBounded by their bytes and their number: who was asked for for longest ago leaves.
func TestKeptParametersAreBounded(t *testing.T) {
	for name, tc := range map[string]struct{ size, most, least int }{
		"large":        {60_000, keptBytes / 60_000, keptBytes/60_000 - 2},
		"small":        {10, keptTrees, keptTrees},
		"less of each": {keptBytes / keptTrees, keptTrees, keptTrees - 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			const many = keptTrees + 10
			for i := range many {
				s.put(fmt.Sprintf("%04d", i), tc.size)
			}
			for i := range many {
				if got := s.ask(fmt.Sprintf("%04d", i)); got != tc.size {
					t.Fatalf("%d bytes are found", got)
				}
			}
			kept := s.kept()
			if len(kept) > tc.most || len(kept) < tc.least || kept[len(kept)-1] != fmt.Sprintf("%04d", many-1) {
				t.Errorf("%d are kept, want at most %d: %q", len(kept), tc.most, kept)
			}
		})
	}
}

// TestManyParameters: those that a selector selects are weighed together, before any is decoded; they are
// refused where there is no turn, and where their sum would have all others go, none of them is kept.
func TestManyParameters(t *testing.T) {
	const size, many = 40_000, keptTogether/40_000 + 1
	s := newShelf(t)
	s.put("one", size)
	s.busy = true
	if got := s.ask("one"); got != size || s.weighed != 0 {
		t.Errorf("one: %d bytes are found, %d weighed", got, s.weighed)
	}
	s.put("two", size)
	if got := s.ask(""); got != -1 || s.weighed < 2*size {
		t.Errorf("two, without a turn: %d bytes are found, %d weighed", got, s.weighed)
	}
	if got := s.kept(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("two, without a turn: %q are kept", got)
	}
	s.busy = false
	for i := range many {
		s.put(fmt.Sprint("other", i), size)
	}
	if got := s.ask(""); got != (many+2)*size {
		t.Errorf("many: %d bytes are found", got)
	}
	if got := s.kept(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("many: %q are kept", got)
	}
}

// TestParametersOfWhoLeft: nothing is decoded of them, and the policy has no part in that.
func TestParametersOfWhoLeft(t *testing.T) {
	s := newShelf(t)
	s.put("a", 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ref := referenceOf(&admissionv1.ParamRef{Selector: &metav1.LabelSelector{}})
	found, err := s.params.of(ctx, s.kind, ref, "default")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	cancel()
	if _, err := found[0].tree(ctx); !errors.Is(err, context.Canceled) || !hurried(ctx, err) {
		t.Error(err)
	}
	if _, err := s.params.of(ctx, s.kind, ref, "default"); !errors.Is(err, context.Canceled) || !hurried(ctx, err) {
		t.Error(err)
	}
	if got := s.kept(); len(got) != 0 {
		t.Errorf("%q are kept", got)
	}
}

// TestKeptTwice: two may have decoded an object at a time, which counts once.
func TestKeptTwice(t *testing.T) {
	s := newShelf(t)
	s.put("a", 1000)
	s.ask("a")
	key := s.params.trees.byKey.Keys()[0]
	was, _ := s.params.trees.byKey.Peek(key)
	s.params.trees.add(key, was, func(string) bool { return true })
	if got := s.kept(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q are kept", got)
	}
}

// TestOneLargeParameter that a selector selects is looked at without a turn: it is one object.
func TestOneLargeParameter(t *testing.T) {
	s := newShelf(t)
	s.put("one", request.LargeBody)
	s.busy = true
	if got := s.ask(""); got != request.LargeBody || s.weighed < request.LargeBody {
		t.Errorf("%d bytes are found, %d weighed", got, s.weighed)
	}
}

// TestDamageAmongParameters: what cannot be read may be one that is selected.
func TestDamageAmongParameters(t *testing.T) {
	s := newShelf(t)
	s.put("a", 1000)
	s.revision++
	s.source.batches <- storage.Batch{Revision: s.revision, Events: []storage.Event{{
		Type: storage.Created, Key: s.kind.Key("default", "b"), Revision: s.revision, CreateRevision: s.revision, Seal: &storage.Seal{Stored: []byte("x"), Err: &storage.UnreadableError{Key: s.kind.Key("default", "b"), Revision: s.revision, Err: errors.New("damaged")}},
	}}}
	if err := <-s.source.applied; err != nil {
		t.Fatal(err)
	}
	s.put("c", 1000) // what follows can be read
	ref := referenceOf(&admissionv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": "one"}}})
	if found, err := s.params.of(t.Context(), s.kind, ref, "default"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%d are found, %v", len(found), err)
	}
}
