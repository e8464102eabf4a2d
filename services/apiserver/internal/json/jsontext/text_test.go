package jsontext_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// TestAppendStringMatchesEncodingJSON checks every byte at every position of short strings, because
// AppendString reads eight bytes at a time.
func TestAppendStringMatchesEncodingJSON(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for c := range 256 {
				for _, beside := range []string{"a", "\x7f", "!", "=", "]", "é"} {
					text := strings.Repeat(beside, at) + string([]byte{byte(c)}) + strings.Repeat(beside, n-at-1)
					want, _ := json.Marshal(text)
					if got := jsontext.AppendString(nil, text); string(got) != string(want) {
						t.Fatalf("AppendString(%q) = %s, want %s", text, got, want)
					}
					if got := jsontext.AppendContent(nil, text); `"`+string(got)+`"` != string(want) {
						t.Fatalf("AppendContent(%q) = %s, want %s without quotes", text, got, want)
					}
				}
			}
		}
	}
}

// jsonTexts are strings, numbers and other texts, valid and invalid.
var jsonTexts = []string{
	`""`, `"a"`, `"long enough for a word"`, `"\"\\\/\b\f\n\r\t\u00e9"`, `"\u12"`, `"\x"`, `"\`, `"a`, "\"\x1f\"", "\"tab\tin a text\"", `"<>&"`, "\"\u2028\"", "\"é€𝄞\"", "\"\xff\"",
	`0`, `-0`, `7`, `-12`, `00`, `01`, `-`, `1.`, `1.5`, `.5`, `1e5`, `1E+5`, `1e-05`, `1e`, `1.5e+`, `+1`, `0x1`, `1_0`, `NaN`,
	`true`, `false`, `null`, `tru`, `nul`, `{}`, `[]`, `{"a":1}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,2]`, `[1,]`, `[,1]`, `{1:2}`, `{"a"}`, `[{"b":[]},"x"]`, `{"a":1]`, `[1}`, `{}{}`, ``,
}

// TestStringAndNumberAcceptWhatEncodingJSONAccepts checks that String and Number find the end of
// valid tokens, also in the middle of a document, and reject invalid ones.
func TestStringAndNumberAcceptWhatEncodingJSONAccepts(t *testing.T) {
	for _, text := range jsonTexts {
		for _, prefix := range []string{"", "1234567", "12345678"} {
			doc := []byte(prefix + text)
			end := -1
			switch {
			case strings.HasPrefix(text, `"`):
				end, _ = jsontext.String(doc, len(prefix)+1)
			case strings.ContainsAny(text[:min(1, len(text))], "-+.0123456789"):
				end, _ = jsontext.Number(doc, len(prefix))
			default:
				continue
			}
			if valid := end == len(doc); valid != json.Valid([]byte(text)) {
				t.Errorf("%s after %q: got end %d, want %d only if the text is valid, which is %t", text, prefix, end, len(doc), !valid)
			}
		}
	}
}

// TestStringReportsFeatures checks that String reports escapes, bytes beyond ASCII and characters
// that encoding/json escapes.
func TestStringReportsFeatures(t *testing.T) {
	for text, want := range map[string]jsontext.Features{
		`"plain text"`: 0, `"a\n"`: jsontext.Escapes, `"é"`: jsontext.Wide, `"a<b"`: jsontext.Markup,
		"\"\u2028\"": jsontext.Wide | jsontext.Markup, `"\u00e9 <é"`: jsontext.Escapes | jsontext.Wide | jsontext.Markup,
	} {
		if _, got := jsontext.String([]byte(text), 1); got != want {
			t.Errorf("String(%s): got features %b, want %b", text, got, want)
		}
	}
}

// TestCompactMatchesEncodingJSON checks that Compact accepts exactly the texts that encoding/json
// writes unchanged, up to 64 levels.
func TestCompactMatchesEncodingJSON(t *testing.T) {
	for _, token := range jsonTexts {
		for _, text := range []string{
			"[" + token + "]", `{"k":` + token + `}`, `{"k":[` + token + `,"after"]}`, `[ ` + token + `]`,
			"[" + token + "] ",
		} {
			written, err := json.Marshal(json.RawMessage(text))
			want := err == nil && bytes.Equal(written, []byte(text))
			got := jsontext.Compact([]byte(text))
			if got && !want {
				t.Errorf("Compact(%q) = true, want false: encoding/json writes %q (%v)", text, written, err)
			}
			if want && !got && !strings.Contains(text, "\xe2") {
				t.Errorf("Compact(%q) = false, want true", text)
			}
		}
	}
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	if jsontext.Compact([]byte(deep)) {
		t.Error("Compact of 65 levels = true, want false")
	}
	if !jsontext.Compact([]byte(deep[1 : len(deep)-1])) {
		t.Error("Compact of 64 levels = false, want true")
	}
}

// TestMeasureIgnoresTextInStrings checks the counts of each structure, and that text inside strings does not count.
func TestMeasureIgnoresTextInStrings(t *testing.T) {
	for text, want := range map[string]jsontext.Size{
		``:                            {},
		`"a,[{:\"}"`:                  {},
		`[[1,2],{"key" : "[,"}]`:      {Depth: 2, Containers: 3, Commas: 2, Key: 3, Indent: 2 + 4 + 4 + 2 + 4},
		`{"a":1,"longer":{"b":[]}}`:   {Depth: 3, Containers: 3, Commas: 1, Key: 6, Indent: 2 + 2 + 4 + 6},
		`{"a":"a longer text"}`:       {Depth: 1, Containers: 1, Key: 1, Indent: 2},
		`["unfinished, [`:             {Depth: 1, Containers: 1, Indent: 2},
		`["\\","\\\"",{"\"":"\\\\"}]`: {Depth: 2, Containers: 2, Commas: 2, Key: 2, Indent: 2 + 2 + 2 + 4},
	} {
		if got := jsontext.Measure([]byte(text)); got != want {
			t.Errorf("Measure(%s) = %+v, want %+v", text, got, want)
		}
	}
}

// TestLoneSurrogateIgnoresPairs checks that only an escape without its other half is reported.
func TestLoneSurrogateIgnoresPairs(t *testing.T) {
	for text, want := range map[string]string{
		`"\ud834\udd1e"`: "", `"\u00e9"`: "", `"\\ud834"`: "", `"\`: "",
		`"\ud834"`: `\ud834`, `"\udd1e"`: `\udd1e`, `"\ud834\ud834\udd1e"`: `\ud834`, `"\uD834\u0041"`: `\uD834`,
	} {
		if got := jsontext.LoneSurrogate([]byte(text)); string(got) != want {
			t.Errorf("LoneSurrogate(%s) = %q, want %q", text, got, want)
		}
	}
}

// BenchmarkMeasure measures the scan of a document.
func BenchmarkMeasure(b *testing.B) {
	var env strings.Builder
	for range 60 {
		env.WriteString(`{"name":"SETTING","value":"value of \"it\"","optional":true,"weight":1.5},`)
	}
	doc := []byte(`{"spec":{"env":[` + strings.TrimSuffix(env.String(), ",") + `]}}`)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		jsontext.Measure(doc)
	}
}
