package encryption

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources derives the resource of a value from its key.
type Resources struct {
	root    string
	builtIn map[string]schema.GroupResource // by the part between the root and the object
}

// NewResources takes the root of all keys, which ends with a slash, and the key prefixes of the
// built-in resources.
func NewResources(root string, builtIn map[string]schema.GroupResource) *Resources {
	r := &Resources{root: root, builtIn: map[string]schema.GroupResource{}}
	for prefix, gr := range builtIn {
		r.builtIn[strings.TrimPrefix(prefix, root)] = gr
	}
	return r
}

// Of returns the resource of a key, and false for keys of no resource. Custom resources are stored
// below their group, which contains a dot.
func (r *Resources) Of(key string) (schema.GroupResource, bool) {
	rest, ok := strings.CutPrefix(key, r.root)
	if !ok {
		return schema.GroupResource{}, false
	}
	first := strings.IndexByte(rest, '/') + 1
	if first == 0 {
		return schema.GroupResource{}, false
	}
	if gr, ok := r.builtIn[rest[:first]]; ok {
		return gr, true
	}
	second := strings.IndexByte(rest[first:], '/')
	if second <= 0 {
		return schema.GroupResource{}, false
	}
	if gr, ok := r.builtIn[rest[:first+second+1]]; ok {
		return gr, true
	}
	group := rest[:first-1]
	return schema.GroupResource{Group: group, Resource: rest[first : first+second]}, strings.IndexByte(group, '.') > 0
}
