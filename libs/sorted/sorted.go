package sorted

import (
	"cmp"

	"github.com/tidwall/btree"
)

// Set is a sorted set. Items that the order does not distinguish are the same item.
type Set[T any] interface {
	Len() int
	// Get returns the item of the set that equals key in the order.
	Get(key T) (item T, ok bool)
	// GetAt returns the item at a position, counted from 0.
	GetAt(index int) (item T, ok bool)
	// Set adds an item, or replaces the equal one and returns it.
	Set(item T) (previous T, replaced bool)
	// Load is a Set that is faster for items after all others.
	Load(item T) (previous T, replaced bool)
	Delete(key T) (previous T, deleted bool)
	// Ascend calls visit for all items at and after from in order, until visit returns false.
	Ascend(from T, visit func(T) bool)
	// Scan calls visit for all items in order, until visit returns false.
	Scan(visit func(T) bool)
	// Copy returns a set that can change independently.
	Copy() Set[T]
}

// NewSet returns an empty set in the order of less. A degree above 0 is the maximum number of
// children of a node: a change after a copy copies less in small nodes, and searches are faster in
// large ones.
func NewSet[T any](less func(a, b T) bool, degree int) Set[T] {
	return set[T]{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: degree})}
}

// set does not embed the tree, because the compiler would wrap all of its methods.
type set[T any] struct{ tree *btree.BTreeG[T] }

func (s set[T]) Len() int                          { return s.tree.Len() }
func (s set[T]) Get(key T) (T, bool)               { return s.tree.Get(key) }
func (s set[T]) GetAt(index int) (T, bool)         { return s.tree.GetAt(index) }
func (s set[T]) Set(item T) (T, bool)              { return s.tree.Set(item) }
func (s set[T]) Load(item T) (T, bool)             { return s.tree.Load(item) }
func (s set[T]) Delete(key T) (T, bool)            { return s.tree.Delete(key) }
func (s set[T]) Ascend(from T, visit func(T) bool) { s.tree.Ascend(from, visit) }
func (s set[T]) Scan(visit func(T) bool)           { s.tree.Scan(visit) }
func (s set[T]) Copy() Set[T]                      { return set[T]{s.tree.Copy()} }

// Map is a sorted map.
type Map[K cmp.Ordered, V any] interface {
	Len() int
	Get(key K) (value V, ok bool)
	// Set sets the value of a key, and returns the previous one.
	Set(key K, value V) (previous V, replaced bool)
	Delete(key K) (previous V, deleted bool)
	Clear()
	// Ascend calls visit for all keys from a key on in order, until visit returns false.
	Ascend(from K, visit func(K, V) bool)
	// Scan calls visit for all keys in order, until visit returns false.
	Scan(visit func(K, V) bool)
	// Copy returns a map that can change independently.
	Copy() Map[K, V]
}

// NewMap returns an empty map.
func NewMap[K cmp.Ordered, V any]() Map[K, V] { return treeMap[K, V]{&btree.Map[K, V]{}} }

type treeMap[K cmp.Ordered, V any] struct{ tree *btree.Map[K, V] }

func (m treeMap[K, V]) Len() int                             { return m.tree.Len() }
func (m treeMap[K, V]) Get(key K) (V, bool)                  { return m.tree.Get(key) }
func (m treeMap[K, V]) Set(key K, value V) (V, bool)         { return m.tree.Set(key, value) }
func (m treeMap[K, V]) Delete(key K) (V, bool)               { return m.tree.Delete(key) }
func (m treeMap[K, V]) Clear()                               { m.tree.Clear() }
func (m treeMap[K, V]) Ascend(from K, visit func(K, V) bool) { m.tree.Ascend(from, visit) }
func (m treeMap[K, V]) Scan(visit func(K, V) bool)           { m.tree.Scan(visit) }
func (m treeMap[K, V]) Copy() Map[K, V]                      { return treeMap[K, V]{m.tree.Copy()} }
