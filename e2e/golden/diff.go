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
	for name, values := range want.Headers {
		if gotValues := got.Headers[name]; jsonText(gotValues) != jsonText(values) {
			out = append(out, fmt.Sprintf("header %s: want %q, got %q", name, values, gotValues))
		}
	}
	for name, gotValues := range got.Headers {
		if _, ok := want.Headers[name]; !ok {
			out = append(out, fmt.Sprintf("header %s: want none, got %q", name, gotValues))
		}
	}
	compare("", toGenericJSON(want.Body), toGenericJSON(got.Body), skip, &out)
	return out
}

// toGenericJSON converts recorded and fresh bodies to the same types.
func toGenericJSON(value any) (out any) {
	if err := json.Unmarshal([]byte(jsonText(value)), &out); err != nil {
		return err.Error()
	}
	return out
}

// compare appends the differences between two JSON values to out. path is the path of the values.
// Fields named skip are ignored.
func compare(path string, want, got any, skip string, out *[]string) {
	switch wantValue := want.(type) {
	case map[string]any:
		if gotValue, ok := got.(map[string]any); ok {
			compareMaps(path, wantValue, gotValue, skip, out)
			return
		}
	case []any:
		if gotValue, ok := got.([]any); ok {
			compareLists(path, wantValue, gotValue, skip, out)
			return
		}
	}
	if wantValue, ok := want.(string); ok && skip != "" && path == "" {
		// A body that is not JSON may be YAML.
		if gotValue, ok := got.(string); ok && withoutYAMLField(wantValue, skip) == withoutYAMLField(gotValue, skip) {
			return
		}
	}
	if jsonText(want) != jsonText(got) && !sameAge(path, want, got) {
		*out = append(*out, fmt.Sprintf("%s: want %.300s, got %.300s", path, jsonText(want), jsonText(got)))
	}
}

// youngAge matches the age of an object that the case created. A slow machine may increase it.
var youngAge = regexp.MustCompile(`^\d{1,2}s$`)

// sameAge reports whether two cells of a table are both young ages.
func sameAge(path string, want, got any) bool {
	wantText, isText := want.(string)
	gotText, too := got.(string)
	return isText && too && strings.Contains(path, ".cells[") && youngAge.MatchString(wantText) && youngAge.MatchString(gotText)
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
func compareMaps(path string, want, got map[string]any, skip string, out *[]string) {
	keys := slices.Collect(maps.Keys(want))
	for key := range got {
		if _, ok := want[key]; !ok {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	for _, key := range keys {
		if key == skip {
			continue
		}
		wantValue, wanted := want[key]
		gotValue, given := got[key]
		switch {
		case !given:
			*out = append(*out, fmt.Sprintf("%s.%s: want %.200s, got nothing", path, key, jsonText(wantValue)))
		case !wanted:
			*out = append(*out, fmt.Sprintf("%s.%s: want nothing, got %.200s", path, key, jsonText(gotValue)))
		default:
			compare(path+"."+key, wantValue, gotValue, skip, out)
		}
	}
}

// compareLists appends the differences between two arrays to out.
func compareLists(path string, want, got []any, skip string, out *[]string) {
	if len(want) != len(got) {
		*out = append(*out, fmt.Sprintf("%s: want %d items, got %d: %.300s", path, len(want), len(got), jsonText(got)))
		return
	}
	for i := range want {
		compare(fmt.Sprintf("%s[%d]", path, i), want[i], got[i], skip, out)
	}
}
