package golden

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"sort"
	"strings"
)

// newResponse returns the parts of a response that the step compares, with values that differ
// between runs replaced by placeholders.
func newResponse(step Step, resp *http.Response, raw []byte, vars map[string]string) Response {
	response := Response{Status: resp.StatusCode, Headers: map[string][]string{}}
	for _, k := range append([]string{"Content-Type", "Warning"}, step.Show...) {
		if v := resp.Header.Values(k); len(v) > 0 {
			response.Headers[http.CanonicalHeaderKey(k)] = v
		}
	}
	if step.NoBody {
		return response
	}
	var tree any
	if json.Unmarshal(raw, &tree) != nil {
		response.Body = replaceVariableText(string(raw), vars)
		return response
	}
	tree = replaceVariableValues(tree, vars)
	for _, p := range step.Ignore {
		removePath(tree, strings.Split(p, "."))
	}
	if len(step.Only) > 0 {
		kept := map[string]any{}
		for _, p := range step.Only {
			kept[p] = valueAt(tree, strings.Split(p, "."))
		}
		tree = kept
	}
	response.Body = tree
	return response
}

var (
	uuidPattern      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timePattern      = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	revisionPattern  = regexp.MustCompile(`(resource ?[vV]ersion|version|too old|current:|Current:|unexpected)([ :"=(]+)\d{2,}`)
	clusterIPPattern = regexp.MustCompile(`\b10\.0\.0\.\d+\b`)
)

// replaceVariableText replaces parts of a text that differ between runs by placeholders.
func replaceVariableText(s string, vars map[string]string) string {
	s = uuidPattern.ReplaceAllString(s, "<uid>")
	s = timePattern.ReplaceAllString(s, "<time>")
	s = revisionPattern.ReplaceAllString(s, "$1$2<rv>")
	s = clusterIPPattern.ReplaceAllString(s, "<cluster-ip>")
	for k, v := range vars {
		if len(v) > 3 {
			s = strings.ReplaceAll(s, v, "{"+k+"}")
		}
	}
	return s
}

// replaceVariableValues replaces values that differ between runs by placeholders.
func replaceVariableValues(v any, vars map[string]string) any {
	switch value := v.(type) {
	case map[string]any:
		generateName, _ := value["generateName"].(string)
		for k, field := range value {
			s, isString := field.(string)
			switch {
			case isString && k == "resourceVersion" && s != "" && s != "0":
				value[k] = "<rv>"
			case isString && k == "continue" && s != "":
				value[k] = "<continue>"
			case isString && k == "uid" && s != "":
				value[k] = "<uid>"
			case isString && k == "token" && len(s) > 40:
				value[k] = "<token>"
			case isString && k == "name" && generateName != "" && strings.HasPrefix(s, generateName):
				value[k] = generateName + "<random>"
			default:
				value[k] = replaceVariableValues(field, vars)
			}
		}
		if m, ok := value["managedFields"].([]any); ok {
			sort.SliceStable(m, func(i, j int) bool { return jsonText(m[i]) < jsonText(m[j]) })
		}
	case []any:
		for i := range value {
			value[i] = replaceVariableValues(value[i], vars)
		}
	case string:
		return replaceVariableText(value, vars)
	}
	return v
}

// jsonText returns a value as JSON text.
func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// valueAt returns the value at a path such as "spec", "containers", "0", "name", or nil. In a list,
// * returns the values of all items.
func valueAt(v any, p []string) any {
	if len(p) == 0 {
		return v
	}
	switch t := v.(type) {
	case map[string]any:
		// A key may contain dots: try the longest join first.
		for n := len(p); n > 0; n-- {
			if x, ok := t[strings.Join(p[:n], ".")]; ok {
				return valueAt(x, p[n:])
			}
		}
	case []any:
		var i int
		if _, err := fmt.Sscanf(p[0], "%d", &i); err == nil && i < len(t) {
			return valueAt(t[i], p[1:])
		}
		if p[0] == "*" {
			var all []any
			for _, x := range t {
				all = append(all, valueAt(x, p[1:]))
			}
			return all
		}
	}
	return nil
}

// removePath removes the value at a path; * matches any key or index.
func removePath(v any, p []string) {
	if len(p) == 0 {
		return
	}
	switch t := v.(type) {
	case map[string]any:
		for n := len(p); n > 0; n-- {
			k := strings.Join(p[:n], ".")
			if k == "*" {
				for _, x := range t {
					removePath(x, p[1:])
				}
				return
			}
			if x, ok := t[k]; ok {
				if n == len(p) {
					delete(t, k)
				} else {
					removePath(x, p[n:])
				}
				return
			}
		}
	case []any:
		for i, x := range t {
			if p[0] != "*" && p[0] != fmt.Sprint(i) {
				continue
			}
			if len(p) == 1 {
				t[i] = nil // keeps the other indices in place
				continue
			}
			removePath(x, p[1:])
		}
	}
}
