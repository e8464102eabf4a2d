package audit

import (
	"bytes"
	"encoding/json"
	"testing"
)

// The result is that of encoding/json, for any division into parts.
func TestCompactorMatchesEncodingJSON(t *testing.T) {
	for _, text := range []string{
		`{}`, ` [ 1 , 2.5e3 , true,null ] `, "{\n\t\"a b\" : \" c  d \",\r\n \"x\":[ ]}",
		`{"a":"<b>&amp;\"<\\"," \\\" > ":"\\\\<"}`, "{\"a\":\"\u2028\u2029\u2030\u20ac\",\"\u2028\":\"\xe2\x80\"}",
		`"` + "\xe2" + `"`, `["\u2028\u003c<"]`,
	} {
		var compact, want bytes.Buffer
		if err := json.Compact(&compact, []byte(text)); err != nil {
			t.Fatal(err)
		}
		json.HTMLEscape(&want, compact.Bytes())
		for at := range len(text) + 1 {
			for then := at; then <= len(text); then++ {
				var td compactor
				got := td.append(td.append(td.append(nil, []byte(text[:at])), []byte(text[at:then])), []byte(text[then:]))
				if string(got) != want.String() {
					t.Fatalf("%q, cut at %d and %d, is\n%q, want\n%q", text, at, then, got, want.String())
				}
			}
		}
	}
}
