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
	// kind is "new" if only the server's document has the value, "gone" if only Kubernetes' has it,
	// or "changed".
	kind string
	// path is the path of the value: keys separated by dots. Elements of parameter lists are named.
	path     string
	actual   any
	expected any
}

func (d difference) String() string {
	return fmt.Sprintf("%s is %s: got %s, want %s", d.path, d.kind, shortJSON(d.actual), shortJSON(d.expected))
}

// shortJSON returns the beginning of a value as JSON.
func shortJSON(value any) string {
	text, _ := json.Marshal(value)
	if len(text) > 200 {
		return string(text[:200]) + " …"
	}
	return string(text)
}

// differences returns the differences between two JSON values at a path.
func differences(path string, want, actual any) (out []difference) {
	want, actual = parametersByName(want), parametersByName(actual)
	wantMap, isMap := want.(map[string]any)
	actualMap, isToo := actual.(map[string]any)
	if !isMap || !isToo {
		if !reflect.DeepEqual(want, actual) {
			out = append(out, difference{"changed", path, actual, want})
		}
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(wantMap)) {
		if value, has := actualMap[key]; has {
			out = append(out, differences(path+"."+key, wantMap[key], value)...)
		} else {
			out = append(out, difference{"gone", path + "." + key, nil, wantMap[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(actualMap)) {
		if _, has := wantMap[key]; !has {
			out = append(out, difference{"new", path + "." + key, actualMap[key], nil})
		}
	}
	return out
}

// parametersByName converts a list of parameters, whose order is irrelevant, into a map. It returns
// other values unchanged.
func parametersByName(value any) any {
	list, ok := value.([]any)
	if !ok {
		return value
	}
	out := map[string]any{}
	for _, element := range list {
		m, ok := element.(map[string]any)
		if !ok || m["name"] == nil || m["in"] == nil {
			return value
		}
		out[fmt.Sprint(m["in"], " ", m["name"])] = m
	}
	if len(out) == 0 {
		return value
	}
	return out
}

// knownDifference is an accepted difference: its kind, a part and a suffix of its path, and the
// reason.
type knownDifference struct {
	kind     string
	pathPart string // anywhere in the path
	pathEnd  string
	reason   string
}

// indexOfKnown returns the index of the entry in list that accepts a difference, or -1.
func indexOfKnown(list []knownDifference, document string, found difference) int {
	index := document + found.path
	return slices.IndexFunc(list, func(k knownDifference) bool {
		return k.kind == found.kind && strings.Contains(index, k.pathPart) && strings.HasSuffix(index, k.pathEnd)
	})
}
