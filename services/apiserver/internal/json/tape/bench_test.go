package tape_test

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/json/tape"
)

// document returns a document of about 6 KB with strings, numbers and nested objects.
func document() []byte {
	var env strings.Builder
	for i := range 60 {
		fmt.Fprintf(&env, `{"name":"SETTING_%d","value":"value of \"%d\"","optional":true,"weight":%d.5},`, i, i*i, i)
	}
	return []byte(`{"metadata":{"name":"a","labels":{"app":"é"}},"spec":{"env":[` + strings.TrimSuffix(env.String(), ",") + `]}}`)
}

// BenchmarkParse measures the parsing of a document.
func BenchmarkParse(b *testing.B) {
	raw := document()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		doc, err := tape.Parse(raw)
		if err != nil {
			b.Fatal(err)
		}
		doc.Release()
	}
}
