package watchcache

import (
	"maps"
	"strings"
)

// routes says which store a key belongs to. It is replaced, never changed.
type routes struct {
	byName, byPrefix map[string]*Store
}

func (r *routes) with(s *Store) *routes {
	n := &routes{maps.Clone(r.byName), maps.Clone(r.byPrefix)}
	n.byName[s.resource.Name], n.byPrefix[s.resource.Prefix] = s, s
	return n
}

func (r *routes) without(s *Store) *routes {
	n := &routes{maps.Clone(r.byName), maps.Clone(r.byPrefix)}
	delete(n.byName, s.resource.Name)
	delete(n.byPrefix, s.resource.Prefix)
	return n
}

// overlaps tells whether a resource would share its name or keys with another.
func (r *routes) overlaps(res *Resource) bool {
	if r.byName[res.Name] != nil {
		return true
	}
	for prefix := range r.byPrefix {
		if strings.HasPrefix(prefix, res.Prefix) || strings.HasPrefix(res.Prefix, prefix) {
			return true
		}
	}
	return false
}

// find returns the store that a key below root belongs to, or nil.
func (r *routes) find(root, key string) *Store {
	for at := len(root); at < len(key); {
		i := strings.IndexByte(key[at:], '/')
		if i < 0 {
			return nil
		}
		at += i + 1
		if s := r.byPrefix[key[:at]]; s != nil {
			return s
		}
	}
	return nil
}
