package formats_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/json/formats"
)

// randomValue draws a JSON value with strings that are hard to quote and indent in YAML.
func randomValue(t *rapid.T, depth int) any {
	texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", " ", "a\n", "a\n\n b\n", "\ta", "- a", "a: b", "items: []", "|", "yes", "1", "\"", "#", strings.Repeat("word ", 40), "a\nitems: []\nb", "é\u2028", "\x7f", "\u0081\ufeff", "\uffff\u00a0",
	}))
	choice := rapid.IntRange(0, 6).Draw(t, "kind")
	switch {
	case choice == 0 && depth > 0:
		out := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			out[texts.Draw(t, "name")] = randomValue(t, depth-1)
		}
		return out
	case choice == 1 && depth > 0:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			out = append(out, randomValue(t, depth-1))
		}
		return out
	case choice == 2:
		return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
	case choice == 3:
		return rapid.Bool().Draw(t, "flag")
	case choice == 4:
		return nil
	}
	return texts.Draw(t, "text")
}

// TestItemLayoutMatchesList checks that a list whose elements are formatted one by one has the same
// text as the list formatted at once.
func TestItemLayoutMatchesList(t *testing.T) {
	for _, elements := range []string{"items", "rows"} {
		head := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"items: []"},"columnDefinitions":[{"description":"a\nitems: []\n"}],"` + elements + `":[`
		rapid.Check(t, func(t *rapid.T) {
			var items [][]byte
			for range rapid.IntRange(0, 4).Draw(t, "items") {
				data, err := json.Marshal(map[string]any{"metadata": randomValue(t, 3), rapid.String().Draw(t, "more"): randomValue(t, 3)})
				if err != nil {
					t.Fatal(err)
				}
				items = append(items, data)
			}
			whole := []byte(head + string(bytes.Join(items, []byte(","))) + "]}")
			for name, want := range map[string]func([]byte) ([]byte, error){"yaml": formats.JSONToYAML, "json": formats.Indent} {
				layout := formats.NewLayout(elements, name == "yaml")
				got, err := layout.AppendHead(nil, []byte(head+"]}"), len(items) == 0)
				for _, item := range items {
					if err == nil {
						got, err = layout.AppendItem(got, item)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				got = layout.AppendTail(got)
				if data, err := want(whole); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("%s: got\n%s\nwant (%v)\n%s", name, got, err, data)
				}
			}
		})
	}
}

// TestJSONToYAMLIsLossless converts random JSON to YAML and back.
func TestJSONToYAMLIsLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(randomValue(t, 4))
		if err != nil {
			t.Fatal(err)
		}
		yamlText, err := formats.JSONToYAML(data)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		back, err := yaml.YAMLToJSON(yamlText)
		if err != nil {
			t.Fatalf("%q as YAML %q: %v", data, yamlText, err)
		}
		var was, is any
		if json.Unmarshal(data, &was) != nil || json.Unmarshal(back, &is) != nil || !reflect.DeepEqual(was, is) {
			t.Fatalf("YAML %q: got JSON %q, want %q", yamlText, back, data)
		}
	})
}

// TestYAMLReplacesInvalidUnicode checks that lone surrogates and invalid UTF-8 become U+FFFD, which
// YAML can express.
func TestYAMLReplacesInvalidUnicode(t *testing.T) {
	doc := []byte(`{"a":"\ud800x\\ud800\ud83d\ude00","b":"` + "\xff" + `"}`)
	got, err := formats.JSONToYAML(doc)
	if want := `a: "�x\\ud800\U0001F600"` + "\nb: \ufffd\n"; err != nil || string(got) != want {
		t.Errorf("JSONToYAML(%q) = %q, %v, want %q", doc, got, err, want)
	}
}

// TestJSONToYAMLAcceptsAnyKey checks keys that JSON allows and that YAML parsers reject or
// interpret. A client can store them in any object, such as in the keys of field ownership.
func TestJSONToYAMLAcceptsAnyKey(t *testing.T) {
	for _, key := range []string{"", "?", "- a", "a: b", "~", strings.Repeat("k", 2000), `k:{"name":"` + strings.Repeat("\n\x00", 600) + `"}`, strings.Repeat("\u2028", 500)} {
		for _, value := range []any{"b", float64(12345678901234567), -1.5, []any{map[string]any{key: nil}}} {
			want := map[string]any{"a": "yes", key: value}
			data, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			yamlText, err := formats.JSONToYAML(data)
			if err != nil {
				t.Errorf("JSONToYAML with the key %.20q of %d bytes: %v", key, len(key), err)
				continue
			}
			var got map[string]any
			if err := yaml.Unmarshal(yamlText, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("key %.20q of %d bytes: YAML %.100q is read as %.100v, %v, want %.100v", key, len(key), yamlText, got, err, want)
			}
		}
	}
}
