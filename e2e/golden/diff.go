package golden

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// messageDifference matches a difference in the text of a message.
var messageDifference = regexp.MustCompile(`^\S*\.message: want ".*, got "`)

// onlyWording reports whether all differences are in the texts of messages.
func onlyWording(lines []string) bool {
	return !slices.ContainsFunc(lines, func(line string) bool { return !messageDifference.MatchString(line) })
}

// differences returns the differences between got and want. It ignores fields named skip.
func differences(want, got Response, skip string) (out []string) {
	// kube-apiserver returns some client errors with 500 and no reason. Then any 4xx is correct.
	isClientError := got.Status >= http.StatusBadRequest && got.Status < http.StatusInternalServerError
	if want.Status == http.StatusInternalServerError && isClientError && valueAt(want.Body, []string{"reason"}) == nil {
		return nil
	}
	if want.Status != got.Status {
		return []string{fmt.Sprintf("status: want %d, got %d: %.300s", want.Status, got.Status, jsonText(got.Body))}
	}
	for k, v := range want.Headers {
		if g := got.Headers[k]; jsonText(g) != jsonText(v) {
			out = append(out, fmt.Sprintf("header %s: want %q, got %q", k, v, g))
		}
	}
	for k, g := range got.Headers {
		if _, ok := want.Headers[k]; !ok {
			out = append(out, fmt.Sprintf("header %s: want none, got %q", k, g))
		}
	}
	compare("", toGenericJSON(want.Body), toGenericJSON(got.Body), skip, &out)
	return out
}

// toGenericJSON converts recorded and fresh bodies to the same types.
func toGenericJSON(v any) (out any) {
	if err := json.Unmarshal([]byte(jsonText(v)), &out); err != nil {
		return err.Error()
	}
	return out
}

// compare appends the differences between two JSON values to out. Fields named skip
// are ignored.
func compare(at string, want, got any, skip string, out *[]string) {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			compareMaps(at, w, g, skip, out)
			return
		}
	case []any:
		if g, ok := got.([]any); ok {
			compareLists(at, w, g, skip, out)
			return
		}
	}
	if w, ok := want.(string); ok && skip != "" && at == "" {
		// A body that is not JSON may be YAML.
		if g, ok := got.(string); ok && withoutYAMLField(w, skip) == withoutYAMLField(g, skip) {
			return
		}
	}
	if jsonText(want) != jsonText(got) && !sameAge(at, want, got) {
		*out = append(*out, fmt.Sprintf("%s: want %.300s, got %.300s", at, jsonText(want), jsonText(got)))
	}
}

// youngAge matches the age of an object that the case created. A slow machine may increase it.
var youngAge = regexp.MustCompile(`^\d{1,2}s$`)

// sameAge reports whether two cells of a table are both young ages.
func sameAge(at string, want, got any) bool {
	w, isText := want.(string)
	g, too := got.(string)
	return isText && too && strings.Contains(at, ".cells[") && youngAge.MatchString(w) && youngAge.MatchString(g)
}

// withoutYAMLField removes all blocks of a field from a YAML text.
func withoutYAMLField(doc, field string) string {
	var kept []string
	inside := -1 // indentation of the removed field
	for line := range strings.SplitSeq(doc, "\n") {
		bare := strings.TrimLeft(line, " ")
		indent := len(line) - len(bare)
		if inside >= 0 && (indent > inside || indent == inside && strings.HasPrefix(bare, "- ")) {
			continue
		}
		inside = -1
		if strings.HasPrefix(bare, field+":") {
			inside = indent
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// compareMaps appends the differences between two objects to out.
func compareMaps(at string, want, got map[string]any, skip string, out *[]string) {
	keys := slices.Collect(maps.Keys(want))
	for k := range got {
		if _, ok := want[k]; !ok {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		if k == skip {
			continue
		}
		a, wanted := want[k]
		b, given := got[k]
		switch {
		case !given:
			*out = append(*out, fmt.Sprintf("%s.%s: want %.200s, got nothing", at, k, jsonText(a)))
		case !wanted:
			*out = append(*out, fmt.Sprintf("%s.%s: want nothing, got %.200s", at, k, jsonText(b)))
		default:
			compare(at+"."+k, a, b, skip, out)
		}
	}
}

// compareLists appends the differences between two arrays to out.
func compareLists(at string, want, got []any, skip string, out *[]string) {
	if len(want) != len(got) {
		*out = append(*out, fmt.Sprintf("%s: want %d items, got %d: %.300s", at, len(want), len(got), jsonText(got)))
		return
	}
	for i := range want {
		compare(fmt.Sprintf("%s[%d]", at, i), want[i], got[i], skip, out)
	}
}
