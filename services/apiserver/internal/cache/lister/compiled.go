package lister

import "binnacle/services/apiserver/internal/cache/watchcache"

// Compiled keeps one value per object of a resource, such as a compiled policy.
// Update compiles only objects that changed. An object that becomes unreadable
// keeps its value. The caller serializes the calls.
type Compiled[T any] struct {
	Store   *watchcache.Store
	Compile func(*watchcache.Entry) (T, error)
	// Unreadable, if set, is called when an object cannot be compiled. kept reports whether it keeps
	// a value.
	Unreadable func(e *watchcache.Entry, kept bool, err error)

	known map[string]Item[T]
	items []Item[T]
}

// Item is the value of an object.
type Item[T any] struct {
	Entry *watchcache.Entry // that was compiled
	Value T
}

// Update returns the values of the objects in a snapshot of Store that wanted
// selects, in the order of their keys; nil selects all. It forgets the values of all
// others. err is the error of an object without a value.
func (c *Compiled[T]) Update(s watchcache.Snapshot, wanted func(*watchcache.Entry) bool) (items []Item[T], err error) {
	next := make(map[string]Item[T], len(c.known))
	s.Ascend(c.Store.Prefix(), "", func(e *watchcache.Entry) bool {
		if wanted != nil && !wanted(e) {
			return true
		}
		item, kept := c.known[e.Key()]
		if !kept || item.Entry != e {
			value, failed := c.Compile(e)
			if failed == nil {
				item, kept = Item[T]{e, value}, true
			} else if c.Unreadable != nil {
				c.Unreadable(e, kept, failed)
			}
			if !kept {
				err = failed
				return true
			}
		}
		next[e.Key()] = item
		items = append(items, item)
		return true
	})
	c.known, c.items = next, items
	return items, err
}

// Items returns the result of the last Update.
func (c *Compiled[T]) Items() []Item[T] { return c.items }
