package golden

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"sort"
	"strings"
)

// answer returns the compared parts of a response.
func answer(s Step, resp *http.Response, raw []byte, vars map[string]string) Answer {
	a := Answer{Status: resp.StatusCode, Headers: map[string][]string{}}
	for _, k := range append([]string{"Content-Type", "Warning"}, s.Show...) {
		if v := resp.Header.Values(k); len(v) > 0 {
			a.Headers[http.CanonicalHeaderKey(k)] = v
		}
	}
	if s.NoBody {
		return a
	}
	var tree any
	if json.Unmarshal(raw, &tree) != nil {
		a.Body = scrub(string(raw), vars)
		return a
	}
	tree = normal(tree, vars)
	for _, p := range s.Ignore {
		drop(tree, strings.Split(p, "."))
	}
	if len(s.Only) > 0 {
		kept := map[string]any{}
		for _, p := range s.Only {
			kept[p] = lookup(tree, strings.Split(p, "."))
		}
		tree = kept
	}
	a.Body = tree
	return a
}

var (
	uuid   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	stamp  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	revMsg = regexp.MustCompile(`(resource ?[vV]ersion|version|too old|current:|Current:|unexpected)([ :"=(]+)\d{2,}`)
	ip10   = regexp.MustCompile(`\b10\.0\.0\.\d+\b`)
)

// scrub replaces parts of a text that differ between runs.
func scrub(s string, vars map[string]string) string {
	s = uuid.ReplaceAllString(s, "<uid>")
	s = stamp.ReplaceAllString(s, "<time>")
	s = revMsg.ReplaceAllString(s, "$1$2<rv>")
	s = ip10.ReplaceAllString(s, "<cluster-ip>")
	for k, v := range vars {
		if len(v) > 3 {
			s = strings.ReplaceAll(s, v, "{"+k+"}")
		}
	}
	return s
}

// normal replaces values that differ between runs by placeholders.
func normal(v any, vars map[string]string) any {
	switch t := v.(type) {
	case map[string]any:
		gen, _ := t["generateName"].(string)
		for k, x := range t {
			s, isString := x.(string)
			switch {
			case isString && k == "resourceVersion" && s != "" && s != "0":
				t[k] = "<rv>"
			case isString && k == "continue" && s != "":
				t[k] = "<continue>"
			case isString && k == "uid" && s != "":
				t[k] = "<uid>"
			case isString && k == "token" && len(s) > 40:
				t[k] = "<token>"
			case isString && k == "name" && gen != "" && strings.HasPrefix(s, gen):
				t[k] = gen + "<random>"
			default:
				t[k] = normal(x, vars)
			}
		}
		if m, ok := t["managedFields"].([]any); ok {
			sort.SliceStable(m, func(i, j int) bool { return text(m[i]) < text(m[j]) })
		}
	case []any:
		for i := range t {
			t[i] = normal(t[i], vars)
		}
	case string:
		return scrub(t, vars)
	}
	return v
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// lookup returns the value at a path, or nil.
func lookup(v any, p []string) any {
	if len(p) == 0 {
		return v
	}
	switch t := v.(type) {
	case map[string]any:
		// A key may contain dots: try the longest join first.
		for n := len(p); n > 0; n-- {
			if x, ok := t[strings.Join(p[:n], ".")]; ok {
				return lookup(x, p[n:])
			}
		}
	case []any:
		var i int
		if _, err := fmt.Sscanf(p[0], "%d", &i); err == nil && i < len(t) {
			return lookup(t[i], p[1:])
		}
		if p[0] == "*" {
			var all []any
			for _, x := range t {
				all = append(all, lookup(x, p[1:]))
			}
			return all
		}
	}
	return nil
}

// drop removes the value at a path; * matches any key or index.
func drop(v any, p []string) {
	if len(p) == 0 {
		return
	}
	switch t := v.(type) {
	case map[string]any:
		for n := len(p); n > 0; n-- {
			k := strings.Join(p[:n], ".")
			if k == "*" {
				for _, x := range t {
					drop(x, p[1:])
				}
				return
			}
			if x, ok := t[k]; ok {
				if n == len(p) {
					delete(t, k)
				} else {
					drop(x, p[n:])
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
			drop(x, p[1:])
		}
	}
}
