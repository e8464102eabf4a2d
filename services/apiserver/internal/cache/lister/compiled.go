package lister

import (
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Compiled keeps one value per object of a resource, such as a compiled policy.
// Update compiles only objects that changed. An object that becomes corrupt
// keeps its value. The caller serializes the calls.
type Compiled[T any] struct {
	Store   *watchcache.Store
	Compile func(*objects.Entry) (T, error)
	// OnInvalid, if set, is called when an object cannot be compiled. retained reports whether it
	// keeps a value.
	OnInvalid func(e *objects.Entry, retained bool, err error)

	byKey map[string]Item[T]
	items []Item[T]
}

// Item is the value of an object.
type Item[T any] struct {
	Entry *objects.Entry // that was compiled
	Value T
}

// Update returns the values of the objects in a snapshot of Store that isSelected selects, in the
// order of their keys; nil selects all. It forgets the values of all other objects. err is the
// error of an object without a value.
func (c *Compiled[T]) Update(snapshot watchcache.Snapshot, isSelected func(*objects.Entry) bool) (items []Item[T], err error) {
	next := make(map[string]Item[T], len(c.byKey))
	snapshot.Ascend(c.Store.Prefix(), "", func(e *objects.Entry) bool {
		if isSelected != nil && !isSelected(e) {
			return true
		}
		item, compileErr := c.compileEntry(e)
		if compileErr != nil {
			err = compileErr
			return true
		}
		next[e.Key()] = item
		items = append(items, item)
		return true
	})
	c.byKey = next
	c.items = items
	return items, err
}

// compileEntry returns the value of an entry, which is compiled unless it is known. An entry that
// cannot be compiled keeps its earlier value. Without one, the error is that of Compile.
func (c *Compiled[T]) compileEntry(e *objects.Entry) (Item[T], error) {
	item, known := c.byKey[e.Key()]
	if known && item.Entry == e {
		return item, nil
	}
	value, err := c.Compile(e)
	if err == nil {
		return Item[T]{Entry: e, Value: value}, nil
	}
	if c.OnInvalid != nil {
		c.OnInvalid(e, known, err)
	}
	if known {
		return item, nil
	}
	return item, err
}

// Items returns the result of the last Update.
func (c *Compiled[T]) Items() []Item[T] { return c.items }
