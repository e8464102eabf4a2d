package graph_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/controllers/internal/garbagecollector/graph"
	"binnacle/services/controllers/internal/resources"
)

func configMaps() *resources.Resource {
	return &resources.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Kind:                 "ConfigMap",
		Namespaced:           true,
	}
}

// object returns a config map in namespace a.
func object(name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, UID: types.UID("uid-" + name), OwnerReferences: owners,
	}}
}

// ref returns a non-blocking owner reference to object(name).
func ref(name string) metav1.OwnerReference { return ownerReference(name, false) }

// blockingRef returns a blocking owner reference to object(name).
func blockingRef(name string) metav1.OwnerReference { return ownerReference(name, true) }

func ownerReference(name string, block bool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion:         "v1",
		Kind:               "ConfigMap",
		Name:               name,
		UID:                types.UID("uid-" + name),
		BlockOwnerDeletion: &block,
	}
}

func withDeletion(metadata *metav1.PartialObjectMetadata, finalizers ...string) *metav1.PartialObjectMetadata {
	now := metav1.Now()
	metadata.DeletionTimestamp, metadata.Finalizers = &now, finalizers
	return metadata
}

// recorder records tasks as texts such as "delete x".
type recorder struct {
	graph *graph.Graph
	// tasks formats the tasks. It is called later, because the graph is locked while it reports a
	// task.
	tasks    []func() string
	lastNode *graph.Node
}

func (r *recorder) record(task string, node *graph.Node) {
	r.lastNode = node
	r.tasks = append(r.tasks, func() string { return task + " " + r.graph.State(node).Name })
}

func (r *recorder) Delete(node *graph.Node, _ string) { r.record("delete", node) }
func (r *recorder) Orphan(node *graph.Node, _ string) { r.record("orphan", node) }
func (r *recorder) Absent(id graph.Identity) {
	r.tasks = append(r.tasks, func() string { return "absent " + id.Name })
}

func (r *recorder) InvalidNamespace(dependent, owner graph.Identity) {
	r.tasks = append(r.tasks, func() string {
		return fmt.Sprintf("invalid %s: %s %s %s %s %s", dependent.Name, owner.APIVersion, owner.Kind, owner.Namespace,
			owner.Name, owner.UID)
	})
}

// requireTasks compares the set of tasks since the last call, in any order.
func (r *recorder) requireTasks(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, format := range r.tasks {
		got = append(got, format())
	}
	r.tasks = nil
	slices.Sort(got)
	slices.Sort(want)
	got = slices.Compact(got)
	if !slices.Equal(got, want) {
		t.Errorf("tasks %q, want %q", got, want)
	}
}

func newGraph() (*graph.Graph, *recorder) {
	tasks := &recorder{}
	tasks.graph = graph.New(graph.Config{Tasks: tasks})
	return tasks.graph, tasks
}

// TestDeletedOwnerQueuesDependents checks that the removal of an owner queues its dependents.
func TestDeletedOwnerQueuesDependents(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, object("owner"))
	ownerGraph.Observe(resource, object("x", ref("owner")))
	ownerGraph.Observe(resource, object("y", ref("owner")))
	tasks.requireTasks(t)
	ownerGraph.Remove(resource, object("owner"))
	tasks.requireTasks(t, "absent owner", "delete x", "delete y")
}

// TestUnknownOwnerIsVerified checks that a virtual owner is queued, and that its absence queues its
// dependents.
func TestUnknownOwnerIsVerified(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, object("x", ref("owner")))
	tasks.requireTasks(t, "delete owner")
	ownerGraph.RemoveVirtual(graph.Identity{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "owner", UID: "uid-owner"})
	tasks.requireTasks(t, "absent owner", "delete x")
	if count := ownerGraph.Len(); count != 1 {
		t.Errorf("got %d nodes, want 1", count)
	}
}

// TestObservedOwnerIsNoLongerVerified checks that an observed owner clears the doubt, except for references
// with another name.
func TestObservedOwnerIsNoLongerVerified(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, object("x", ref("owner")))
	tasks.requireTasks(t, "delete owner")
	ownerGraph.Observe(resource, object("owner"))
	tasks.requireTasks(t)
	wrong := ref("owner")
	wrong.Name = "other"
	ownerGraph.Observe(resource, object("y", wrong))
	tasks.requireTasks(t, "delete y")
}

// TestVirtualOwnerHasAlternativeIdentities checks that each identity by which dependents refer to a
// virtual owner is verified.
func TestVirtualOwnerHasAlternativeIdentities(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	wrong := ref("owner")
	wrong.Name = "wrong"
	ownerGraph.Observe(resource, object("x", wrong))
	owner := tasks.lastNode
	tasks.requireTasks(t, "delete wrong")
	ownerGraph.Observe(resource, object("y", ref("owner")))
	tasks.requireTasks(t, "delete y")
	if !ownerGraph.RemoveVirtual(graph.Identity{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "wrong", UID: "uid-owner"}) {
		t.Error("RemoveVirtual() = false, want true: y refers to the owner by another name")
	}
	tasks.requireTasks(t, "absent wrong", "delete x")
	if name := ownerGraph.State(owner).Name; name != "owner" {
		t.Errorf("got identity %q, want owner", name)
	}
}

// TestTextsOfRemovedNodesAreReleased changes the owner of an object many times. The uid of an owner
// reference can be any text, and that of a former owner must not stay in memory.
func TestTextsOfRemovedNodesAreReleased(t *testing.T) {
	const changes, size = 64, 1 << 20
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	before := heap()
	for i := range changes {
		owner := ref("owner")
		owner.UID = types.UID(fmt.Sprintf("%0*d", size, i))
		ownerGraph.Observe(resource, object("x", owner))
		ownerGraph.RemoveVirtual(graph.Identity{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "owner", UID: owner.UID})
		owner.UID += "x"
		ownerGraph.Observe(resource, object("x", owner))
		tasks.tasks, tasks.lastNode = nil, nil
	}
	ownerGraph.Remove(resource, object("x"))
	if grown, most := heap()-before, int64(changes/4*size); grown > most {
		t.Errorf("the heap has grown by %d MiB after %d uids of 1 MiB, want at most %d MiB", grown>>20, 2*changes, most>>20)
	}
	if n := ownerGraph.Len(); n != 0 {
		t.Errorf("got %d nodes, want 0", n)
	}
}

// TestOwnerInAnotherNamespaceIsReported checks that a reference to an owner in another namespace is
// reported and verified.
func TestOwnerInAnotherNamespaceIsReported(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, object("owner"))
	dependent := object("x", ref("owner"))
	dependent.Namespace = "b"
	ownerGraph.Observe(resource, dependent)
	tasks.requireTasks(t, "invalid x: v1 ConfigMap b owner uid-owner", "delete x")
}

// TestDependentOfVirtualClusterScopedOwnerIsVerified checks a virtual owner whose first dependent is
// cluster-scoped, so that its namespace is unknown. A later dependent in a namespace is verified,
// too, because the owner may be in that namespace.
func TestDependentOfVirtualClusterScopedOwnerIsVerified(t *testing.T) {
	ownerGraph, tasks := newGraph()
	cluster := object("cluster", ref("owner"))
	cluster.Namespace = ""
	ownerGraph.Observe(configMaps(), cluster) // stands for a cluster-scoped kind
	tasks.requireTasks(t, "delete owner")
	ownerGraph.Observe(configMaps(), object("x", ref("owner")))
	tasks.requireTasks(t, "delete x")
}

// TestForegroundDeletionQueuesOwnerAndDependents checks that foreground deletion queues the owner and its dependents once,
// and the owner again when a dependent is gone.
func TestForegroundDeletionQueuesOwnerAndDependents(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, object("owner"))
	ownerGraph.Observe(resource, object("x", blockingRef("owner")))
	ownerGraph.Observe(resource, withDeletion(object("owner"), metav1.FinalizerDeleteDependents))
	tasks.requireTasks(t, "delete owner", "delete x")
	ownerGraph.Observe(resource, withDeletion(object("owner"), metav1.FinalizerDeleteDependents))
	tasks.requireTasks(t)
	ownerGraph.Remove(resource, object("x"))
	tasks.requireTasks(t, "delete owner")
}

// TestUnblockedOwnerIsQueued checks that an owner is queued when a blocking reference to it
// disappears.
func TestUnblockedOwnerIsQueued(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, object("owner"))
	ownerGraph.Observe(resource, object("x", blockingRef("owner")))
	ownerGraph.Observe(resource, object("x", ref("owner")))
	tasks.requireTasks(t, "delete owner")
	ownerGraph.Observe(resource, object("y", blockingRef("owner")))
	ownerGraph.Observe(resource, object("y"))
	tasks.requireTasks(t, "delete owner")
}

// TestOrphaningComesFirst checks that an owner with both finalizers orphans its dependents before
// it deletes them.
func TestOrphaningComesFirst(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, withDeletion(object("owner"), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents))
	tasks.requireTasks(t, "orphan owner")
	ownerGraph.Observe(resource, withDeletion(object("owner"), metav1.FinalizerDeleteDependents))
	tasks.requireTasks(t, "delete owner")
}

// TestSweepRemovesUnlistedObjects checks that objects that a complete list does not contain are
// removed.
func TestSweepRemovesUnlistedObjects(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	ownerGraph.Observe(resource, object("owner"))
	ownerGraph.Observe(resource, object("x", ref("owner")))
	if n := ownerGraph.Count(resource.GroupResource(), "a"); n != 2 {
		t.Errorf("got count %d, want 2", n)
	}
	epoch := ownerGraph.StartList()
	ownerGraph.Observe(resource, object("x", ref("owner")))
	ownerGraph.Sweep(resource, epoch)
	tasks.requireTasks(t, "absent owner", "delete x")
	if n := ownerGraph.Count(resource.GroupResource(), "a"); n != 1 {
		t.Errorf("got count %d, want 1", n)
	}
}

// TestSweepRemovesObjectsOfAnotherVersion checks that a list of a new version replaces the objects
// of the former version.
func TestSweepRemovesObjectsOfAnotherVersion(t *testing.T) {
	ownerGraph, _ := newGraph()
	former, now := configMaps(), configMaps()
	now.Version = "v2"
	ownerGraph.Observe(former, object("x"))
	epoch := ownerGraph.StartList()
	// The monitor of the former version may still run.
	ownerGraph.Observe(former, object("y"))
	ownerGraph.Sweep(now, epoch)
	if n := ownerGraph.Count(now.GroupResource(), "a"); n != 1 || ownerGraph.Len() != 1 {
		t.Errorf("got count %d and %d nodes, want 1 and 1: only y was observed since the list began", n, ownerGraph.Len())
	}
}

// TestVirtualOwnerWithoutDependentsIsRemoved checks that a virtual node is removed with its last
// dependent.
func TestVirtualOwnerWithoutDependentsIsRemoved(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	unknown := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Unknown", Name: "owner", UID: "uid-owner"}
	ownerGraph.Observe(resource, object("x", unknown))
	ownerGraph.Observe(resource, object("y", unknown))
	ownerGraph.Observe(resource, object("x"))
	if n := ownerGraph.Len(); n != 3 || !ownerGraph.State(tasks.lastNode).Current {
		t.Errorf("got %d nodes while y refers to the owner, want x, y and the current node of the owner", n)
	}
	ownerGraph.Remove(resource, object("y", unknown))
	if n := ownerGraph.Len(); n != 1 || ownerGraph.State(tasks.lastNode).Current {
		t.Errorf("got %d nodes after the last reference to the owner is gone, want only x", n)
	}
}

// TestDependentInAnotherNamespaceDoesNotBlock checks that only dependents in the namespace of the
// owner block its deletion.
func TestDependentInAnotherNamespaceDoesNotBlock(t *testing.T) {
	ownerGraph, tasks := newGraph()
	resource := configMaps()
	elsewhere := object("x", blockingRef("owner"))
	elsewhere.Namespace = "b"
	ownerGraph.Observe(resource, object("owner"))
	ownerGraph.Observe(resource, elsewhere)
	ownerGraph.Observe(resource, object("y", blockingRef("owner")))
	ownerGraph.Observe(resource, withDeletion(object("owner"), metav1.FinalizerDeleteDependents))
	blocking := map[string]bool{}
	for _, dependent := range ownerGraph.Dependents(tasks.lastNode) {
		blocking[dependent.Name] = dependent.Blocks
	}
	if len(blocking) != 2 || blocking["x"] || !blocking["y"] {
		t.Errorf("blocking dependents %v, want only y", blocking)
	}
}

// TestNodeIsLoggedByItsUID checks that logging a node does not read fields that change
// concurrently.
func TestNodeIsLoggedByItsUID(t *testing.T) {
	const uid = "00112233-4455-6677-8899-aabbccddeeff"
	ownerGraph, tasks := newGraph()
	unknownOwner := ref("owner")
	unknownOwner.UID = uid
	ownerGraph.Observe(configMaps(), object("x", unknownOwner))
	var out strings.Builder
	slog.New(slog.NewTextHandler(&out, nil)).Info("failed", "key", tasks.lastNode)
	if !strings.HasSuffix(out.String(), " key="+uid+"\n") {
		t.Errorf("got log %q, want it to end with key=%s", out.String(), uid)
	}
}

// BenchmarkManyOwners changes an object with as many owner references as fit in an object.
func BenchmarkManyOwners(b *testing.B) {
	ownerGraph, _ := newGraph()
	resource := configMaps()
	x := object("x")
	for i := range 50_000 {
		x.OwnerReferences = append(x.OwnerReferences, ref(fmt.Sprintf("%05d", i)))
	}
	for b.Loop() {
		ownerGraph.Observe(resource, x)
		x.OwnerReferences[0], x.OwnerReferences[1] = x.OwnerReferences[1], x.OwnerReferences[0]
	}
}

// BenchmarkMemory reports the memory of the graph for each object. Half of the objects have an
// owner.
func BenchmarkMemory(b *testing.B) {
	const objects, perOwner = 100_000, 10
	for range b.N {
		before := heap()
		ownerGraph := graph.New(graph.Config{})
		resource := configMaps()
		for i := range objects {
			objectMetadata := object(fmt.Sprintf("object-with-a-name-%06d", i))
			objectMetadata.Namespace, objectMetadata.UID = fmt.Sprintf("namespace-%d", i%100), types.UID(fmt.Sprintf("%08d-0000-0000-0000-000000000000", i))
			if i%2 == 1 {
				owner := i / 2 / perOwner * 2 * perOwner // an even number, so the owner has no owner itself
				objectMetadata.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "v1",
					Kind:       "ConfigMap",
					Name:       fmt.Sprintf("object-with-a-name-%06d", owner),
					UID:        types.UID(fmt.Sprintf("%08d-0000-0000-0000-000000000000", owner)),
				}}
			}
			ownerGraph.Observe(resource, objectMetadata)
		}
		b.ReportMetric(float64(heap()-before)/objects, "B/object")
		if ownerGraph.Len() != objects {
			b.Errorf("got %d nodes, want %v", ownerGraph.Len(), objects)
		}
	}
}
