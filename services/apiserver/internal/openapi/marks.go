package openapi

import (
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
)

// marks are what Go types do not say of themselves: how lists and maps are
// merged, and defaults. Types of Kubernetes have them in the schema that
// client-go carries for apply; the project's own in struct tags.
type marks struct {
	types func() map[string]*smd.Map
}

// newMarks reads nothing yet.
func newMarks() *marks {
	return &marks{types: sync.OnceValue(func() map[string]*smd.Map {
		// Any type leads to the schema of all.
		pod := applyconfigurations.NewTypeConverter(runtime.NewScheme()).TypeResolver.Type("io.k8s.api.core.v1.Pod")
		if pod.Schema == nil {
			return nil
		}
		types := make(map[string]*smd.Map, len(pod.Schema.Types))
		for i := range pod.Schema.Types {
			t := &pod.Schema.Types[i]
			types[t.Name] = t.Map
		}
		return types
	})}
}

// mark is what is known of a field, or, with an atomic mapType, of a type.
type mark struct {
	listType, mapType string
	keys              []string
	fallback          any // the default
}

// ofType is the mark of a type by its model's name.
func (m *marks) ofType(model string) mark {
	if t := m.types()[model]; t != nil && t.ElementRelationship == smd.Atomic && len(t.Fields) > 0 {
		return mark{mapType: "atomic"}
	}
	return mark{}
}

// ofField is the mark of a field by its JSON name.
func (m *marks) ofField(model string, f reflect.StructField, name string) mark {
	t := m.types()[model]
	if t == nil {
		k := mark{listType: f.Tag.Get("listType")}
		if key := f.Tag.Get("listMapKey"); key != "" {
			k.keys = strings.Split(key, ",")
		}
		return k
	}
	sf, ok := t.FindField(name)
	if !ok {
		return mark{}
	}
	k := mark{fallback: plain(sf.Default)}
	if r := sf.Type.ElementRelationship; r != nil {
		k.mapType = mapTypes[*r]
	}
	if l := sf.Type.Inlined.List; l != nil {
		switch {
		case l.ElementRelationship != smd.Associative:
			k.listType = "atomic"
		case len(l.Keys) > 0:
			k.listType, k.keys = "map", l.Keys
		default:
			k.listType = "set"
		}
	}
	if mp := sf.Type.Inlined.Map; mp != nil {
		k.mapType = mapTypes[mp.ElementRelationship]
	}
	return k
}

// mapTypes are the names of how a map is merged; where nothing is said, nothing
// is.
var mapTypes = map[smd.ElementRelationship]string{smd.Atomic: "atomic", smd.Separable: "granular"}

// plain turns what a YAML parser makes of an object into what JSON can write.
func plain(v any) any {
	switch v := v.(type) {
	case map[any]any:
		out := map[string]any{}
		for k, x := range v {
			if s, ok := k.(string); ok {
				out[s] = plain(x)
			}
		}
		return out
	default:
		return v
	}
}
