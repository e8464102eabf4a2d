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

var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|<uid-\d+>`)

var scrubs = []struct {
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

// normal replaces values that differ between runs.
func normal(v any, ports map[string]string) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range t {
			s, isString := x.(string)
			if k == "resourceVersion" && isString && s != "" {
				out[k] = "<rv>"
				continue
			}
			out[k] = normal(x, ports)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i := range t {
			out[i] = normal(t[i], ports)
		}
		return out
	case string:
		t = uids.ReplaceAllString(t, "<uid>") // before ports, because a UID may contain their digits
		for name, port := range ports {
			t = strings.ReplaceAll(t, port, name)
		}
		for _, s := range scrubs {
			t = s.pattern.ReplaceAllString(t, s.with)
		}
		return t
	}
	return v
}

// generic converts a value to the types of encoding/json.
func generic(v any) (out any) {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	_ = json.Unmarshal(b, &out)
	return out
}

// differences lists the differences between got and want.
func differences(at string, want, got any) (out []string) {
	if w, ok := want.(map[string]any); ok {
		if g, ok := got.(map[string]any); ok {
			keys := map[string]bool{}
			for k := range w {
				keys[k] = true
			}
			for k := range g {
				keys[k] = true
			}
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				a, wanted := w[k]
				b, given := g[k]
				switch {
				case !given:
					out = append(out, fmt.Sprintf("%s.%s: want %.300s, got nothing", at, k, text(a)))
				case !wanted:
					out = append(out, fmt.Sprintf("%s.%s: want nothing, got %.300s", at, k, text(b)))
				default:
					out = append(out, differences(at+"."+k, a, b)...)
				}
			}
			return out
		}
	}
	if w, ok := want.([]any); ok {
		if g, ok := got.([]any); ok && len(w) == len(g) {
			for i := range w {
				out = append(out, differences(fmt.Sprintf("%s[%d]", at, i), w[i], g[i])...)
			}
			return out
		}
	}
	if text(want) != text(got) {
		out = append(out, fmt.Sprintf("%s: want %.500s, got %.500s", at, text(want), text(got)))
	}
	return out
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// bind records the fresh values of placeholders in a recorded value.
func bind(recorded, fresh any, into map[string]string) {
	switch r := recorded.(type) {
	case map[string]any:
		if f, ok := fresh.(map[string]any); ok {
			for k := range r {
				bind(r[k], f[k], into)
			}
		}
	case []any:
		if f, ok := fresh.([]any); ok {
			for i := range min(len(r), len(f)) {
				bind(r[i], f[i], into)
			}
		}
	case string:
		if f, ok := fresh.(string); ok && placeholder.MatchString(r) {
			into[r] = f
		}
	}
}

var placeholder = regexp.MustCompile(`^<(uid|rv|time)(-\d+)?>$`)

// servicePorts are placeholders of service ports, which are numbers if they stand alone.
var servicePorts = map[string]bool{"<ext>": true, "<ext-wrong-name>": true, "<hook-unknown-ca>": true, "<closed-port>": true, "<plain>": true}

// fill replaces placeholders by their values.
func fill(v any, values map[string]string) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range t {
			out[k] = fill(x, values)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i := range t {
			out[i] = fill(t[i], values)
		}
		return out
	case string:
		if v, ok := values[t]; ok {
			if port, err := strconv.Atoi(v); err == nil && servicePorts[t] {
				return port
			}
			return v
		}
		for name, value := range values {
			t = strings.ReplaceAll(t, name, value)
		}
		return t
	}
	return v
}
