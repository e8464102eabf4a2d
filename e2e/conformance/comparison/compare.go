package comparison

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// difference is a difference between two responses.
type difference struct {
	// class is equal for differences with the same likely cause.
	class string
	// want and got are the values of kube-apiserver and of binnacle.
	want, got string
}

var (
	quoted  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	indices = regexp.MustCompile(`\[\d+\]`)
	numbers = regexp.MustCompile(`\d+`)
)

// template removes from a text what differs between requests with the same error.
func template(s string) string {
	s = quoted.ReplaceAllString(s, `""`)
	s = indices.ReplaceAllString(s, "[]")
	s = numbers.ReplaceAllString(s, "N")
	return Shorten(s, 160)
}

func Shorten(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// compare returns the differences between the responses of kube-apiserver and binnacle.
func compare(want, got Answer) []difference {
	if want.Err != "" || got.Err != "" {
		if (want.Err == "") == (got.Err == "") {
			return nil
		}
		return []difference{{class: "transport error: " + template(want.Err) + " | " + template(got.Err), want: Summary(want), got: Summary(got)}}
	}
	if want.Status == http.StatusInternalServerError && got.Status >= 400 && got.Status < 500 && Lookup(want.body, "reason") == nil {
		return nil // a mistake of the client, for which any 4xx is right
	}
	if expired(want.body) && !expired(got.body) {
		return []difference{{class: "watch: expired -> not expired", want: Summary(want), got: Summary(got)}}
	}
	if unnamed(want.body) && Lookup(got.body, "metadata.uid") != nil {
		return []difference{{class: "object without a name -> object", want: Summary(want), got: Summary(got)}}
	}
	if want.Status != got.Status {
		return []difference{{
			class: fmt.Sprintf("status %d -> %d: %s -> %s", want.Status, got.Status, template(message(want)), template(message(got))),
			want:  Summary(want), got: Summary(got),
		}}
	}
	var out []difference
	if isStatus(want.body) && isStatus(got.body) {
		out = compareStatus(want.body.(map[string]any), got.body.(map[string]any))
	} else {
		compareTrees("", want.body, got.body, &out)
		for i := range out {
			out[i].class = ofObject(out[i].class)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(merged(want.headers, got.headers))) {
		w, g := want.headers[name], got.headers[name]
		if w == g {
			continue
		}
		class := "header " + name
		if name == "Warning" {
			class += ": " + template(w) + " -> " + template(g)
		}
		out = append(out, difference{class: class, want: w, got: g})
	}
	return out
}

// ofObject removes from a class where the object is: in a list, in an event or in the row of a table.
func ofObject(class string) string {
	for _, prefix := range []string{".items[].", "[].object.", ".object.", ".rows[].object."} {
		if rest, ok := strings.CutPrefix(class, prefix); ok {
			return "." + rest
		}
	}
	return class
}

// unnamed reports whether a body is an object with empty metadata.
func unnamed(body any) bool {
	metadata, ok := Lookup(body, "metadata").(map[string]any)
	return ok && len(metadata) == 1 && metadata["creationTimestamp"] == nil && !isStatus(body)
}

// isEvent reports whether a value is a watch event.
func isEvent(v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 2 && m["type"] != nil && m["object"] != nil
}

// expired reports whether a watch ended because its version is too old.
func expired(body any) bool {
	events, _ := body.([]any)
	return len(events) == 1 && Lookup(events[0], "type") == "ERROR" && Lookup(events[0], "object.reason") == "Expired"
}

func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func isStatus(v any) bool {
	return Lookup(v, "kind") == "Status" && Lookup(v, "apiVersion") == "v1"
}

func message(a Answer) string {
	if m, ok := Lookup(a.body, "message").(string); ok {
		return m
	}
	if m, ok := a.body.(string); ok {
		return m
	}
	if kind, ok := Lookup(a.body, "kind").(string); ok {
		return "<" + kind + ">"
	}
	return ""
}

func Summary(a Answer) string {
	if a.Err != "" {
		return a.Err
	}
	if m := message(a); m != "" && m[0] != '<' {
		return fmt.Sprintf("%d %s", a.Status, Shorten(m, 500))
	}
	return fmt.Sprintf("%d %s", a.Status, Shorten(JSONText(a.body), 500))
}

// compareStatus compares two Status objects. Differences of causes explain those of messages.
func compareStatus(want, got map[string]any) []difference {
	if JSONText(want) == JSONText(got) {
		return nil
	}
	var out []difference
	w, g := causes(want), causes(got)
	if unordered(want) {
		slices.Sort(w)
		slices.Sort(g)
	}
	sortedW, sortedG := slices.Sorted(slices.Values(w)), slices.Sorted(slices.Values(g))
	if !slices.Equal(sortedW, sortedG) {
		missing, extra := minus(sortedW, sortedG), minus(sortedG, sortedW)
		var classes []string
		for _, m := range missing {
			classes = append(classes, "-"+template(m))
		}
		for _, e := range extra {
			classes = append(classes, "+"+template(e))
		}
		slices.Sort(classes)
		classes = slices.Compact(classes)
		if len(missing)+len(extra) > 0 {
			return []difference{{class: "causes: " + Shorten(strings.Join(classes, " "), 400), want: strings.Join(missing, "\n"), got: strings.Join(extra, "\n")}}
		}
	}
	if w, g = byField(w), byField(g); !slices.Equal(w, g) {
		var classes []string
		for i := range w {
			if w[i] != g[i] {
				classes = append(classes, template(w[i]), template(g[i]))
				break
			}
		}
		return []difference{{class: "order of causes: " + strings.Join(classes, " before "), want: strings.Join(w, "\n"), got: strings.Join(g, "\n")}}
	}
	if len(w) > 1 {
		want, got = maps.Clone(want), maps.Clone(got)
		for _, status := range []map[string]any{want, got} {
			delete(status, "message") // lists the causes
			details := maps.Clone(status["details"].(map[string]any))
			delete(details, "causes")
			status["details"] = details
		}
	}
	compareTrees("Status", want, got, &out)
	for i, d := range out {
		if strings.HasPrefix(d.class, "Status.message") {
			out[i].class = "message: " + template(jsonString(d.want)) + " -> " + template(jsonString(d.got))
		}
	}
	return out
}

// unordered reports whether the order of the causes of kube-apiserver is random. It finds the
// conflicts of an apply by manager, and validates the fields of a custom resource, in the order of a
// map.
func unordered(status map[string]any) bool {
	group, _ := Lookup(status, "details.group").(string)
	return strings.HasSuffix(group, ".example.com") || Lookup(status, "details.causes.0.reason") == "FieldManagerConflict"
}

// byField sorts neighboring causes of the same field and of its elements. kube-apiserver validates
// the entries of a map in random order.
func byField(causes []string) []string {
	out := slices.Clone(causes)
	field := func(cause string) string {
		name, _, _ := strings.Cut(cause, " ")
		name, _, _ = strings.Cut(name, "[")
		return name
	}
	for from := 0; from < len(out); {
		to := from
		for to < len(out) && field(out[to]) == field(out[from]) {
			to++
		}
		slices.Sort(out[from:to])
		from = to
	}
	return out
}

// jsonString returns the text of a JSON string.
func jsonString(s string) string {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	return s
}

// minus returns the elements of a that are not in b, with their multiplicity.
func minus(a, b []string) []string {
	counts := map[string]int{}
	for _, x := range b {
		counts[x]++
	}
	var out []string
	for _, x := range a {
		if counts[x]--; counts[x] < 0 {
			out = append(out, x)
		}
	}
	return out
}

func causes(status map[string]any) []string {
	list, _ := Lookup(status, "details.causes").([]any)
	var out []string
	for _, c := range list {
		text := fmt.Sprintf("%v %v: %v", Lookup(c, "field"), Lookup(c, "reason"), Lookup(c, "message"))
		if strings.Contains(text, "nodePort") {
			text = nodePorts.ReplaceAllString(text, "<node port>")
		}
		out = append(out, text)
	}
	return out
}

func compareTrees(at string, want, got any, out *[]difference) {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			all := maps.Clone(w)
			maps.Copy(all, g)
			for _, k := range slices.Sorted(maps.Keys(all)) {
				a, inWant := w[k]
				b, inGot := g[k]
				switch {
				case !inWant:
					*out = append(*out, difference{class: at + "." + k + ": not expected", got: JSONText(b)})
				case !inGot:
					*out = append(*out, difference{class: at + "." + k + ": missing", want: JSONText(a)})
				default:
					compareTrees(at+"."+k, a, b, out)
				}
			}
			return
		}
	case []any:
		if g, ok := got.([]any); ok {
			if names, ok := namesOf(w, g); ok {
				if names != "" {
					*out = append(*out, difference{class: at + ": items" + names, want: JSONText(want), got: JSONText(got)})
				}
				return
			}
			if len(w) != len(g) {
				*out = append(*out, difference{class: at + ": number of items", want: itemNames(w), got: itemNames(g)})
				return
			}
			for i := range w {
				compareTrees(at+"[]", w[i], g[i], out)
			}
			return
		}
	}
	if w, g := JSONText(want), JSONText(got); w != g {
		class := template(w) + " -> " + template(g)
		if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
			class = fmt.Sprintf("%T -> %T", want, got)
		}
		*out = append(*out, difference{class: at + ": " + class, want: w, got: g})
	}
}

// itemNames names the events, reviews or objects of a list, and returns the list.
func itemNames(list []any) string {
	var names []string
	for _, v := range list {
		var parts []string
		for _, path := range []string{"type", "object.metadata.name", "object.metadata.deletionTimestamp", "request.operation", "request.name", "metadata.name"} {
			if text, ok := Lookup(v, path).(string); ok {
				parts = append(parts, text)
			}
		}
		names = append(names, strings.Join(parts, " "))
	}
	return strings.Join(names, ", ") + "\n" + JSONText(list)
}

// namesOf returns the strings that one of two lists of strings of different lengths lacks. It returns
// false for all other lists.
func namesOf(want, got []any) (names string, ok bool) {
	var lists [2][]string
	for i, list := range [][]any{want, got} {
		for _, v := range list {
			s, is := v.(string)
			if !is {
				return "", false
			}
			lists[i] = append(lists[i], s)
		}
	}
	if len(want) == len(got) {
		return "", false
	}
	for _, s := range minus(lists[0], lists[1]) {
		names += fmt.Sprintf(" -%q", s)
	}
	for _, s := range minus(lists[1], lists[0]) {
		names += fmt.Sprintf(" +%q", s)
	}
	return names, true
}
