package reviews

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// uidPattern matches UIDs and their placeholders.
var uidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|<uid-\d+>`)

// variablePatterns match values that differ between runs, and their placeholders in recordings.
var variablePatterns = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "<time>"},
	{regexp.MustCompile(`<rv-\d+>`), "<rv>"},
	{regexp.MustCompile(`gen-[a-z0-9]{5}\b|gen-<random>`), "gen-<random>"},
	{regexp.MustCompile(`X509SHA256=([0-9a-f]{64}|<hex>)`), "X509SHA256=<hex>"},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`), "<jwt>"},
	{regexp.MustCompile(`JTI=<uid>|JTI=<[a-z0-9-]+>`), "JTI=<uid>"},
	{regexp.MustCompile(`eyJ2IjoibWV0YS[A-Za-z0-9_-]+`), "<continue>"},
	{regexp.MustCompile(` \(possibly because of "x509: [^)]*\)`), ""},
	{regexp.MustCompile(`\(0x[0-9a-f]+\)|\(0x<address>\)`), "(0x<address>)"},
	{regexp.MustCompile(`stream ID \d+`), "stream ID <n>"},
	{regexp.MustCompile(` on [0-9.:]+: no such host| on <dns>: no such host`), ": no such host"},
	{regexp.MustCompile(`(<port>)?<[a-z0-9-]*(port|hook|ext|plain|ca|name)[a-z0-9-]*>`), "<port>"},
}

// replaceVariableValues returns a copy of v in which values that differ between runs are replaced
// by placeholders. ports maps placeholders to port numbers.
func replaceVariableValues(tree any, ports map[string]string) any {
	switch t := tree.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range t {
			s, isString := x.(string)
			if k == "resourceVersion" && isString && s != "" {
				out[k] = "<rv>"
				continue
			}
			out[k] = replaceVariableValues(x, ports)
			if entries, isList := out[k].([]any); isList && k == "managedFields" {
				sortByText(entries)
			}
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i := range t {
			out[i] = replaceVariableValues(t[i], ports)
		}
		return out
	case string:
		t = uidPattern.ReplaceAllString(t, "<uid>") // before ports, because a UID may contain their digits
		for name, port := range ports {
			t = strings.ReplaceAll(t, port, name)
		}
		for _, s := range variablePatterns {
			t = s.pattern.ReplaceAllString(t, s.with)
		}
		return t
	}
	return tree
}

// sortByText sorts entries of managed fields. A server sorts them by time in seconds first, so that
// their order depends on whether two writes fall into the same second.
func sortByText(entries []any) {
	slices.SortFunc(entries, func(a, b any) int { return strings.Compare(jsonText(a), jsonText(b)) })
}

// toGenericJSON converts a value to the types of encoding/json.
func toGenericJSON(value any) (out any) {
	b, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	_ = json.Unmarshal(b, &out)
	return out
}

// differences describes the differences between got and want, one per line. path is their path.
func differences(path string, want, got any) (out []string) {
	wantMap, wantIsMap := want.(map[string]any)
	gotMap, gotIsMap := got.(map[string]any)
	if wantIsMap && gotIsMap {
		return mapDifferences(path, wantMap, gotMap)
	}
	wantList, wantIsList := want.([]any)
	gotList, gotIsList := got.([]any)
	if wantIsList && gotIsList && len(wantList) == len(gotList) {
		for i := range wantList {
			out = append(out, differences(fmt.Sprintf("%s[%d]", path, i), wantList[i], gotList[i])...)
		}
		return out
	}
	if jsonText(want) != jsonText(got) {
		out = append(out, fmt.Sprintf("%s: want %.500s, got %.500s", path, jsonText(want), jsonText(got)))
	}
	return out
}

// mapDifferences describes the differences between the entries of got and want.
func mapDifferences(path string, want, got map[string]any) (out []string) {
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		wanted, isWanted := want[k]
		given, isGiven := got[k]
		switch {
		case !isGiven:
			out = append(out, fmt.Sprintf("%s.%s: want %.300s, got nothing", path, k, jsonText(wanted)))
		case !isWanted:
			out = append(out, fmt.Sprintf("%s.%s: want nothing, got %.300s", path, k, jsonText(given)))
		default:
			out = append(out, differences(path+"."+k, wanted, given)...)
		}
	}
	return out
}

// jsonText returns a value as JSON text.
func jsonText(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// bindPlaceholders stores in into, by placeholder, the values in fresh at the places where recorded
// has a placeholder.
func bindPlaceholders(recorded, fresh any, into map[string]string) {
	switch r := recorded.(type) {
	case map[string]any:
		if f, ok := fresh.(map[string]any); ok {
			for k := range r {
				bindPlaceholders(r[k], f[k], into)
			}
		}
	case []any:
		if f, ok := fresh.([]any); ok {
			for i := range min(len(r), len(f)) {
				bindPlaceholders(r[i], f[i], into)
			}
		}
	case string:
		if f, ok := fresh.(string); ok && placeholder.MatchString(r) {
			into[r] = f
		}
	}
}

// placeholder matches the placeholders of values that a request repeats.
var placeholder = regexp.MustCompile(`^<(uid|rv|time)(-\d+)?>$`)

// servicePorts are placeholders of service ports, which are numbers if they stand alone.
var servicePorts = map[string]bool{
	"<ext>":             true,
	"<ext-wrong-name>":  true,
	"<hook-unknown-ca>": true,
	"<closed-port>":     true,
	"<plain>":           true,
}

// fillPlaceholders returns a copy of v with placeholders replaced by their values.
func fillPlaceholders(tree any, values map[string]string) any {
	switch t := tree.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range t {
			out[k] = fillPlaceholders(x, values)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i := range t {
			out[i] = fillPlaceholders(t[i], values)
		}
		return out
	case string:
		if tree, ok := values[t]; ok {
			if port, err := strconv.Atoi(tree); err == nil && servicePorts[t] {
				return port
			}
			return tree
		}
		for name, value := range values {
			t = strings.ReplaceAll(t, name, value)
		}
		return t
	}
	return tree
}
