package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// difference is something that one of two documents has and the other has not.
type difference struct {
	// what it is: "new" when only we have it, "gone" when only they have, or "changed".
	what string
	// path leads to it: keys with dots between; elements of lists by their names.
	path string
	ours any
	want any
}

func (d difference) String() string {
	return fmt.Sprintf("%s is %s: %s, want %s", d.path, d.what, short(d.ours), short(d.want))
}

func short(v any) string {
	text, _ := json.Marshal(v)
	if len(text) > 200 {
		return string(text[:200]) + " …"
	}
	return string(text)
}

// differences lists what differs between two values of JSON.
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

// named makes a map of a list of parameters, whose order says nothing.
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

// known is a difference that has a reason: what it is, which part its path has, and how
// the path ends.
type known struct{ what, part, end, why string }

// explain returns the place in a list of the reason for a difference; -1 if there is none.
func explain(list []known, document string, d difference) int {
	at := document + d.path
	return slices.IndexFunc(list, func(k known) bool {
		return k.what == d.what && strings.Contains(at, k.part) && strings.HasSuffix(at, k.end)
	})
}
