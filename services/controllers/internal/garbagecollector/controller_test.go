package garbagecollector_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/services/controllers/internal/garbagecollector"
	"binnacle/services/controllers/internal/garbagecollector/graph"
	"binnacle/services/controllers/internal/resources"
)

func object(name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", OwnerReferences: owners,
		},
	}
}

func ref(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID("uid-" + name)}
}

// served is a resources.Discovery of config maps and nodes.
type served struct{}

func (served) Groups(context.Context) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	verbs := []string{"get", "list", "watch", "delete"}
	discovery := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{
		{
			Resource:     "configmaps",
			ResponseKind: &metav1.GroupVersionKind{Kind: "ConfigMap"},
			Scope:        apidiscoveryv2.ScopeNamespace,
			Verbs:        verbs,
		},
		{
			Resource:     "nodes",
			ResponseKind: &metav1.GroupVersionKind{Kind: "Node"},
			Scope:        apidiscoveryv2.ScopeCluster,
			Verbs:        verbs,
		},
	}}
	return []apidiscoveryv2.APIGroupDiscovery{{Versions: []apidiscoveryv2.APIVersionDiscovery{discovery}}}, nil
}

// discardRecorder discards events.
type discardRecorder struct{}

func (discardRecorder) Warn(corev1.ObjectReference, string, string) {}

// fixture is a collector on a graph of config maps.
type fixture struct {
	t        *testing.T
	client   *fake.FakeMetadataClient
	graph    *graph.Graph
	resource *resources.Resource
}

// newFixture starts a collector in a synctest bubble. The objects exist, and the graph contains
// them.
func newFixture(t *testing.T, objects ...*metav1.PartialObjectMetadata) *fixture {
	f := newIdleFixture(t, objects...)
	f.start(objects...)
	return f
}

// newIdleFixture returns a fixture whose collector does not run yet. The objects exist.
func newIdleFixture(t *testing.T, objects ...*metav1.PartialObjectMetadata) *fixture {
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var existing []runtime.Object
	for _, existingObject := range objects {
		existing = append(existing, existingObject)
	}
	return &fixture{t: t, client: fake.NewSimpleMetadataClient(scheme, existing...)}
}

// start starts the collector. The graph contains the objects.
func (f *fixture) start(objects ...*metav1.PartialObjectMetadata) {
	t := f.t
	cache := resources.NewCache(served{})
	table, err := cache.Get(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	f.resource = table.Preferred[0]
	controller := garbagecollector.New(garbagecollector.Config{
		Client: f.client, Resources: cache, Events: discardRecorder{}, Log: slog.New(slog.DiscardHandler), Workers: 2,
	})
	f.graph = graph.New(graph.Config{Tasks: controller.Tasks()})
	for _, existingObject := range objects {
		resource, err := table.ByKind(existingObject.APIVersion, existingObject.Kind)
		if err != nil {
			t.Fatal(err)
		}
		f.graph.Observe(resource, existingObject)
	}
	listed := make(chan struct{})
	close(listed)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); controller.Run(ctx, f.graph, listed) }()
	t.Cleanup(func() { cancel(); <-done })
	f.settle()
}

func (f *fixture) settle() {
	time.Sleep(100 * time.Millisecond) // the bubble's time
	synctest.Wait()
}

// requests returns the writes as text.
func (f *fixture) requests() (out []string) {
	for _, a := range f.client.Actions() {
		switch a := a.(type) {
		case clienttesting.DeleteActionImpl:
			out = append(out, "delete "+a.Name) // the fake drops the options
		case clienttesting.PatchActionImpl:
			out = append(out, "patch "+a.Name+" "+string(a.Patch))
		}
	}
	slices.Sort(out)
	return out
}

func (f *fixture) requireRequests(want ...string) {
	f.t.Helper()
	if got := f.requests(); !slices.Equal(got, want) {
		f.t.Errorf("requests %q, want %q", got, want)
	}
}

// TestDependentsOfMissingOwnersAreDeleted checks that objects without owner references are kept,
// and that dependents of a missing owner are deleted.
func TestDependentsOfMissingOwnersAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, object("x", ref("gone")), object("y", ref("gone")), object("free"))
		fixture.requireRequests("delete x", "delete y")
	})
}

// TestAnotherOwnerKeepsTheObject checks that an object with an existing owner only loses its
// references to missing ones.
func TestAnotherOwnerKeepsTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, object("owner"), object("x", ref("owner"), ref("gone")))
		fixture.requireRequests(`patch x {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"uid-gone"}],"uid":"uid-x"}}`)
	})
}

// TestOwnerWithAnotherUIDIsAbsent checks that an object of the same name with another uid is not
// the owner.
func TestOwnerWithAnotherUIDIsAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := ref("owner")
		again.UID = "uid-former"
		newFixture(t, object("owner"), object("x", again)).requireRequests("delete x")
	})
}

// TestDependentIsDeletedAfterItsOwner checks that the deletion of an owner causes the deletion of
// its dependent.
func TestDependentIsDeletedAfterItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := object("owner")
		fixture := newFixture(t, owner, object("x", ref("owner")))
		fixture.requireRequests()
		if err := fixture.client.Resource(fixture.resource.GroupVersionResource).Namespace("a").Delete(t.Context(), "owner",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		fixture.client.ClearActions()
		fixture.graph.Remove(fixture.resource, owner)
		fixture.settle()
		fixture.requireRequests("delete x")
	})
}

// TestForegroundWaitsForBlockingDependents checks that the owner loses its finalizer only after the
// blocking dependent is gone.
func TestForegroundWaitsForBlockingDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, block := metav1.Now(), ref("owner")
		block.BlockOwnerDeletion = new(bool)
		*block.BlockOwnerDeletion = true
		owner, x := object("owner"), object("x", block)
		owner.DeletionTimestamp, owner.Finalizers = &now, []string{metav1.FinalizerDeleteDependents}
		fixture := newFixture(t, owner, x)
		fixture.requireRequests("delete x")
		fixture.graph.Remove(fixture.resource, x)
		fixture.settle()
		fixture.requireRequests("delete x", `patch owner {"metadata":{"finalizers":[],"resourceVersion":"7"}}`)
	})
}

// TestOrphaningRemovesReferencesThenFinalizer checks that orphaning removes the references of dependents and then the finalizer,
// and keeps other finalizers.
func TestOrphaningRemovesReferencesThenFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		owner := object("owner")
		owner.DeletionTimestamp, owner.Finalizers = &now, []string{metav1.FinalizerOrphanDependents, "example.com/kept"}
		newFixture(t, owner, object("x", ref("owner"))).requireRequests(
			`patch owner {"metadata":{"finalizers":["example.com/kept"],"resourceVersion":"7"}}`,
			`patch x {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"uid-owner"}],"uid":"uid-x"}}`)
	})
}

// TestClusterScopedDependentDoesNotRefuteNamespacedOwner checks that a reference without a
// namespace is no proof that a namespaced owner is absent.
func TestClusterScopedDependentDoesNotRefuteNamespacedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := object("node", ref("owner"))
		node.Kind, node.Namespace = "Node", ""
		// The owner exists, but the graph does not contain it yet.
		x := object("x", ref("owner"))
		fixture := newIdleFixture(t, node, x, object("owner"))
		fixture.start(node, x)
		fixture.requireRequests()
	})
}

// TestUnservedResourceIsNoProofOfAbsence checks that a "not found" without the name of an object
// deletes nothing.
func TestUnservedResourceIsNoProofOfAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metadataObject := object("x", ref("owner"))
		fixture := newIdleFixture(t, metadataObject, object("owner"))
		fixture.client.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if get, ok := action.(clienttesting.GetAction); !ok || get.GetName() != "owner" {
				return false, nil, nil
			}
			return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
				Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
			}}
		})
		fixture.start(metadataObject)
		fixture.requireRequests()
	})
}

// TestCycleIsBrokenWithoutNewOwners checks that a cycle of blocking references is broken, and that
// the object is not read between its patch and its deletion.
func TestCycleIsBrokenWithoutNewOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, block := metav1.Now(), ref("x")
		block.BlockOwnerDeletion = new(bool)
		*block.BlockOwnerDeletion = true
		toOwner := ref("owner")
		toOwner.BlockOwnerDeletion = block.BlockOwnerDeletion
		// owner waits for x, and is itself a dependent of x.
		owner, x := object("owner", block), object("x", toOwner)
		owner.DeletionTimestamp, owner.Finalizers = &now, []string{metav1.FinalizerDeleteDependents}
		fixture := newFixture(t, owner, x)
		var verbs []string
		for _, a := range fixture.client.Actions() {
			switch a := a.(type) {
			case clienttesting.PatchActionImpl:
				verbs = append(verbs, "patch "+a.Name)
			case clienttesting.DeleteActionImpl:
				verbs = append(verbs, "delete "+a.Name)
			case clienttesting.GetActionImpl:
				if a.Name == "x" {
					verbs = append(verbs, "get "+a.Name)
				}
			}
		}
		// A read between the two writes could return owners that were not looked up.
		i := slices.Index(verbs, "patch x")
		if i < 0 || len(verbs) < i+2 || verbs[i+1] != "delete x" {
			t.Errorf("requests %q, want the deletion of x right after its patch", verbs)
		}
	})
}
