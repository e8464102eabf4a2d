package watchcache

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"
)

// routes maps keys to stores. It is replaced, never changed. A replacement shares what does not
// differ, because thousands of resources may be added one by one.
type routes struct{ byName, byPrefix *btree.Map[string, *Store] }

func newRoutes() *routes { return &routes{&btree.Map[string, *Store]{}, &btree.Map[string, *Store]{}} }

// copy returns routes that can be changed until they are published. The caller holds Cache.mu.
func (r *routes) copy() *routes { return &routes{r.byName.Copy(), r.byPrefix.Copy()} }

func (r *routes) with(s *Store) *routes {
	n := r.copy()
	n.byName.Set(s.resource.Name, s)
	n.byPrefix.Set(s.resource.Prefix, s)
	return n
}

func (r *routes) without(s *Store) *routes {
	n := r.copy()
	n.byName.Delete(s.resource.Name)
	n.byPrefix.Delete(s.resource.Prefix)
	return n
}

// named returns the store of a resource, or nil.
func (r *routes) named(name string) *Store {
	s, _ := r.byName.Get(name)
	return s
}

// at returns the store with a prefix, or nil.
func (r *routes) at(prefix string) *Store {
	s, _ := r.byPrefix.Get(prefix)
	return s
}

// all iterates over the stores in the order of their names.
func (r *routes) all() iter.Seq[*Store] {
	return func(yield func(*Store) bool) {
		r.byName.Scan(func(_ string, s *Store) bool { return yield(s) })
	}
}

// overlaps reports whether a resource would share its name or keys with another.
func (r *routes) overlaps(res *Resource) bool {
	if r.named(res.Name) != nil {
		return true
	}
	for i := range res.Prefix {
		if res.Prefix[i] == '/' && r.at(res.Prefix[:i+1]) != nil {
			return true
		}
	}
	below := false
	r.byPrefix.Ascend(res.Prefix, func(prefix string, _ *Store) bool {
		below = strings.HasPrefix(prefix, res.Prefix)
		return false
	})
	return below
}

// find returns the store of a key below root, or nil.
func (r *routes) find(root, key string) *Store {
	for at := len(root); at < len(key); {
		i := strings.IndexByte(key[at:], '/')
		if i < 0 {
			return nil
		}
		at += i + 1
		if s := r.at(key[:at]); s != nil {
			return s
		}
	}
	return nil
}
