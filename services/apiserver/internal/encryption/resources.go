package encryption

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources tells from a key of which resource its value is.
type Resources struct {
	root    string
	builtIn map[string]schema.GroupResource // by what stands between root and object
}

// NewResources takes the root of all keys, which ends with a slash, and what the keys
// of the built-in resources begin with.
func NewResources(root string, builtIn map[string]schema.GroupResource) *Resources {
	r := &Resources{root: root, builtIn: map[string]schema.GroupResource{}}
	for prefix, gr := range builtIn {
		r.builtIn[strings.TrimPrefix(prefix, root)] = gr
	}
	return r
}

// Of returns the resource of a key; false for keys of none. Custom resources stand
// below their group, which has a dot in it.
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
