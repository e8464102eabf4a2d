package policy

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
)

// sink takes what is followed. Its methods are called by one goroutine.
type sink interface {
	// replace takes the whole state at a revision.
	replace(objs []metav1.Object, revision string)
	set(metav1.Object)
	remove(metav1.Object)
	// advance tells of a revision up to which nothing else happened.
	advance(revision string)
}

// rules feeds a kind of role or binding to the engine.
type rules struct {
	engine *rbac.Engine
	kind   string
}

func (s *rules) replace(objs []metav1.Object, revision string) {
	s.engine.Update(func(tx *rbac.Tx) {
		tx.Clear(s.kind)
		for _, o := range objs {
			tx.Set(o)
		}
		tx.Advance(s.kind, number(revision))
	})
}

func (s *rules) set(o metav1.Object) { s.engine.Update(func(tx *rbac.Tx) { tx.Set(o) }) }

func (s *rules) remove(o metav1.Object) {
	s.engine.Update(func(tx *rbac.Tx) {
		tx.Delete(s.kind, o.GetNamespace(), o.GetName())
		tx.Advance(s.kind, number(o.GetResourceVersion()))
	})
}

func (s *rules) advance(revision string) {
	s.engine.Update(func(tx *rbac.Tx) { tx.Advance(s.kind, number(revision)) })
}

// number reads a resourceVersion. One that is no number is of an API server
// that does not count; positions then stay at 0, and decisions are not kept.
func number(revision string) int64 {
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nodes feeds a resource to the graph.
type nodes struct {
	graph *node.Graph
	kind  node.Kind
}

func (s *nodes) replace(objs []metav1.Object, _ string) {
	type key struct{ namespace, name string }
	present := make(map[key]bool, len(objs))
	for _, o := range objs {
		s.graph.Set(o)
		present[key{o.GetNamespace(), o.GetName()}] = true
	}
	s.graph.Keep(s.kind, func(namespace, name string) bool { return present[key{namespace, name}] })
}

func (s *nodes) set(o metav1.Object)    { s.graph.Set(o) }
func (s *nodes) remove(o metav1.Object) { s.graph.Delete(s.kind, o.GetNamespace(), o.GetName()) }
func (s *nodes) advance(string)         {}
