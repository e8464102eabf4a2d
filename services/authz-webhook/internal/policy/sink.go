package policy

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
)

// objectSink receives the objects of a resource. One goroutine calls its methods.
type objectSink interface {
	// replace replaces the whole state at a revision.
	replace(objs []metav1.Object, revision string)
	set(metav1.Object)
	remove(metav1.Object)
	// advance reports a revision up to which there are no other changes.
	advance(revision string)
}

// ruleSink applies a kind of role or binding to the engine.
type ruleSink struct {
	engine *rbac.Engine
	kind   string
}

func (s *ruleSink) replace(objs []metav1.Object, revision string) {
	s.engine.Update(func(transaction *rbac.Tx) {
		transaction.Clear(s.kind)
		for _, o := range objs {
			transaction.Set(o)
		}
		transaction.Advance(s.kind, revisionNumber(revision))
	})
}

func (s *ruleSink) set(o metav1.Object) { s.engine.Update(func(tx *rbac.Tx) { tx.Set(o) }) }

func (s *ruleSink) remove(o metav1.Object) {
	s.engine.Update(func(tx *rbac.Tx) {
		tx.Delete(s.kind, o.GetNamespace(), o.GetName())
		tx.Advance(s.kind, revisionNumber(o.GetResourceVersion()))
	})
}

func (s *ruleSink) advance(revision string) {
	s.engine.Update(func(tx *rbac.Tx) { tx.Advance(s.kind, revisionNumber(revision)) })
}

// revisionNumber parses a resourceVersion. A value that is not a number comes from an API server
// that does not use numbers. Positions then stay at 0, and decisions are not cached.
func revisionNumber(revision string) int64 {
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nodeSink applies a resource to the graph.
type nodeSink struct {
	graph *node.Graph
	kind  node.Kind
}

func (s *nodeSink) replace(objs []metav1.Object, _ string) {
	type key struct{ namespace, name string }
	present := make(map[key]bool, len(objs))
	for _, o := range objs {
		s.graph.Set(o)
		present[key{o.GetNamespace(), o.GetName()}] = true
	}
	s.graph.Retain(s.kind, func(namespace, name string) bool { return present[key{namespace, name}] })
}

func (s *nodeSink) set(o metav1.Object)    { s.graph.Set(o) }
func (s *nodeSink) remove(o metav1.Object) { s.graph.Delete(s.kind, o.GetNamespace(), o.GetName()) }
func (s *nodeSink) advance(string)         {}
