package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// difference is a difference between two documents.
type difference struct {
	// kind is "new" if only our document has the value, "gone" if only Kubernetes' has it, or
	// "changed".
	kind string
	// path is the path of the value: keys separated by dots. Elements of parameter lists are named.
	path     string
	actual   any
	expected any
}

func (d difference) String() string {
	return fmt.Sprintf("%s is %s: got %s, want %s", d.path, d.kind, short(d.actual), short(d.expected))
}

func short(v any) string {
	text, _ := json.Marshal(v)
	if len(text) > 200 {
		return string(text[:200]) + " …"
	}
	return string(text)
}

// differences returns the differences between two JSON values.
func differences(path string, want, ours any) (out []difference) {
	want, ours = named(want), named(ours)
	w, isMap := want.(map[string]any)
	o, isToo := ours.(map[string]any)
	if !isMap || !isToo {
		if !reflect.DeepEqual(want, ours) {
			out = append(out, difference{"changed", path, ours, want})
		}
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if value, has := o[key]; has {
			out = append(out, differences(path+"."+key, w[key], value)...)
		} else {
			out = append(out, difference{"gone", path + "." + key, nil, w[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if _, has := w[key]; !has {
			out = append(out, difference{"new", path + "." + key, o[key], nil})
		}
	}
	return out
}

// named converts a list of parameters, whose order is irrelevant, into a map.
func named(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for _, element := range list {
		m, ok := element.(map[string]any)
		if !ok || m["name"] == nil || m["in"] == nil {
			return v
		}
		out[fmt.Sprint(m["in"], " ", m["name"])] = m
	}
	if len(out) == 0 {
		return v
	}
	return out
}

// knownDifference is an accepted difference: its kind, a part and a suffix of its path, and the
// reason.
type knownDifference struct{ kind, part, end, reason string }

// explain returns the index of the entry that accepts a difference, or -1.
func explain(list []knownDifference, document string, d difference) int {
	at := document + d.path
	return slices.IndexFunc(list, func(k knownDifference) bool {
		return k.kind == d.kind && strings.Contains(at, k.part) && strings.HasSuffix(at, k.end)
	})
}
