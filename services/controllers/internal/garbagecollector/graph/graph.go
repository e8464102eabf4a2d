package graph

import (
	"slices"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/controllers/internal/resources"
)

// Tasks receives the nodes that need work. namespace is the one whose share of the workers the work
// uses: the namespace of the node, or of a dependent if the node is virtual.
type Tasks interface {
	// Delete asks to delete the object of a node if no owner keeps it.
	Delete(n *Node, namespace string)
	// Orphan asks to remove the references to a node from its dependents.
	Orphan(n *Node, namespace string)
	// Absent reports an identity that owner references state, but that no object has.
	Absent(Identity)
	// InvalidNamespace reports an object whose owner is in another namespace. owner is the identity
	// that the owner reference states, in the namespace of dependent.
	InvalidNamespace(dependent, owner Identity)
}

// Config configures a Graph. Every field may be nil.
type Config struct {
	Tasks Tasks
	// Changed is called after an object appears, changes or is deleted.
	Changed func(r *resources.Resource, namespace string, deleted bool)
}

// Graph holds the nodes. The zero value is not usable.
type Graph struct {
	Config

	mu           sync.RWMutex // leaf lock, except for Config
	nodes        map[uid]*Node
	nonCanonical map[uid]types.UID          // original text of uids that are not canonical UUIDs
	counts       map[namespacedResource]int // number of observed objects
	epoch        uint32                     // the number of lists that have started
}

// namespacedResource is a resource in a namespace.
type namespacedResource struct {
	resource  schema.GroupResource
	namespace string
}

// New returns an empty graph.
func New(config Config) *Graph {
	if config.Tasks == nil {
		config.Tasks = noTasks{}
	}
	if config.Changed == nil {
		config.Changed = func(*resources.Resource, string, bool) {}
	}
	return &Graph{Config: config, nodes: map[uid]*Node{}, nonCanonical: map[uid]types.UID{}, counts: map[namespacedResource]int{}}
}

// noTasks ignores all tasks.
type noTasks struct{}

func (noTasks) Delete(*Node, string)           {}
func (noTasks) Orphan(*Node, string)           {}
func (noTasks) Absent(Identity)                {}
func (noTasks) InvalidNamespace(_, _ Identity) {}

// State is the state of a node.
type State struct {
	Identity
	Observed, Deleting, DeletingDependents bool
	HasDependents                          bool
	// Current is false if the graph no longer contains the node.
	Current bool
}

// State returns the state of a node.
func (g *Graph) State(node *Node) State {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return State{
		Identity:           g.identity(node),
		Observed:           node.hasFlag(flagObserved),
		Deleting:           node.hasFlag(flagDeleting),
		DeletingDependents: node.hasFlag(flagDeletingDependents),
		HasDependents:      len(node.dependents) > 0,
		Current:            g.nodes[node.uid] == node,
	}
}

// Dependent is a dependent of a node.
type Dependent struct {
	Node *Node
	Identity
	DeletingDependents bool
	// Blocks reports whether the owner waits for this dependent. A dependent in another namespace
	// than its owner does not block, so that it cannot prevent a deletion there.
	Blocks bool
}

// Dependents returns the dependents of a node.
func (g *Graph) Dependents(node *Node) []Dependent {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]Dependent, 0, len(node.dependents))
	for dependent := range node.dependents {
		dep := Dependent{Node: dependent, Identity: g.identity(dependent), DeletingDependents: dependent.hasFlag(flagDeletingDependents)}
		if node.namespace.Value() == "" || node.namespace == dependent.namespace {
			refers := func(o owner) bool { return o.uid == node.uid && o.blocks }
			dep.Blocks = slices.ContainsFunc(dependent.owners, refers)
		}
		out = append(out, dep)
	}
	return out
}

// Count returns the number of objects of a resource in a namespace.
func (g *Graph) Count(resource schema.GroupResource, namespace string) int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.counts[namespacedResource{resource, namespace}]
}

// Len returns the number of nodes.
func (g *Graph) Len() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.nodes)
}

// setCounted adds a node to counts, or removes it. If it is there already, or not there, setCounted
// does nothing.
func (g *Graph) setCounted(node *Node, include bool) {
	if node.resource == nil || node.hasFlag(flagCounted) == include {
		return
	}
	node.setFlag(flagCounted, include)
	key := namespacedResource{node.resource.GroupResource(), node.namespace.Value()}
	if include {
		g.counts[key]++
		return
	}
	g.counts[key]--
	if g.counts[key] == 0 {
		delete(g.counts, key)
	}
}

// ownersOf converts owner references. A reference to a known node shares the memory of its name.
func (g *Graph) ownersOf(refs []metav1.OwnerReference) []owner {
	if len(refs) == 0 {
		return nil
	}
	out := make([]owner, 0, len(refs))
	for i := range refs {
		r := &refs[i]
		uid, _ := packUID(r.UID)
		ref := owner{
			kind:   unique.Make(apiKind{r.APIVersion, r.Kind}),
			name:   r.Name,
			uid:    uid,
			blocks: r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion,
		}
		if n := g.nodes[ref.uid]; n != nil && n.name == ref.name {
			ref.name = n.name
		}
		out = append(out, ref)
	}
	return out
}
