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
	for _, name := range append([]string{"Content-Type", "Warning"}, step.Show...) {
		if values := resp.Header.Values(name); len(values) > 0 {
			response.Headers[http.CanonicalHeaderKey(name)] = values
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
	for _, path := range step.Ignore {
		removePath(tree, strings.Split(path, "."))
	}
	if len(step.Only) > 0 {
		kept := map[string]any{}
		for _, path := range step.Only {
			kept[path] = valueAt(tree, strings.Split(path, "."))
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
func replaceVariableText(text string, vars map[string]string) string {
	text = uuidPattern.ReplaceAllString(text, "<uid>")
	text = timePattern.ReplaceAllString(text, "<time>")
	text = revisionPattern.ReplaceAllString(text, "$1$2<rv>")
	text = clusterIPPattern.ReplaceAllString(text, "<cluster-ip>")
	for k, v := range vars {
		if len(v) > 3 {
			text = strings.ReplaceAll(text, v, "{"+k+"}")
		}
	}
	return text
}

// replaceVariableValues replaces values that differ between runs by placeholders.
func replaceVariableValues(tree any, vars map[string]string) any {
	switch value := tree.(type) {
	case map[string]any:
		generateName, _ := value["generateName"].(string)
		for key, field := range value {
			text, isString := field.(string)
			switch {
			case isString && key == "resourceVersion" && text != "" && text != "0":
				value[key] = "<rv>"
			case isString && key == "continue" && text != "":
				value[key] = "<continue>"
			case isString && key == "uid" && text != "":
				value[key] = "<uid>"
			case isString && key == "token" && len(text) > 40:
				value[key] = "<token>"
			case isString && key == "name" && generateName != "" && strings.HasPrefix(text, generateName):
				value[key] = generateName + "<random>"
			default:
				value[key] = replaceVariableValues(field, vars)
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
	return tree
}

// jsonText returns a value as JSON text.
func jsonText(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// valueAt returns the value at a path such as "spec", "containers", "0", "name", or nil. In a list,
// * returns the values of all items.
func valueAt(value any, path []string) any {
	if len(path) == 0 {
		return value
	}
	switch node := value.(type) {
	case map[string]any:
		// A key may contain dots: try the longest join first.
		for length := len(path); length > 0; length-- {
			if child, ok := node[strings.Join(path[:length], ".")]; ok {
				return valueAt(child, path[length:])
			}
		}
	case []any:
		var i int
		if _, err := fmt.Sscanf(path[0], "%d", &i); err == nil && i < len(node) {
			return valueAt(node[i], path[1:])
		}
		if path[0] == "*" {
			var values []any
			for _, child := range node {
				values = append(values, valueAt(child, path[1:]))
			}
			return values
		}
	}
	return nil
}

// removePath removes the value at a path; * matches any key or index.
func removePath(value any, path []string) {
	if len(path) == 0 {
		return
	}
	switch node := value.(type) {
	case map[string]any:
		for length := len(path); length > 0; length-- {
			key := strings.Join(path[:length], ".")
			if key == "*" {
				for _, child := range node {
					removePath(child, path[1:])
				}
				return
			}
			if child, ok := node[key]; ok {
				if length == len(path) {
					delete(node, key)
				} else {
					removePath(child, path[length:])
				}
				return
			}
		}
	case []any:
		for i, child := range node {
			if path[0] != "*" && path[0] != fmt.Sprint(i) {
				continue
			}
			if len(path) == 1 {
				node[i] = nil // keeps the other indices in place
				continue
			}
			removePath(child, path[1:])
		}
	}
}
