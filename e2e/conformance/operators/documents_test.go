package main

import (
	"slices"
	"testing"
)

// TestDocumentsLeaveOutTemplatesAndTexts checks that lines of templates, texts and invalid YAML are
// skipped, and that lists are expanded.
func TestDocumentsLeaveOutTemplatesAndTexts(t *testing.T) {
	const file = `# a comment
{{- if .Values.enabled }}
kind: A
metadata:
  name: {{ .Values.name }}
{{- end }}
---
kind: List
items:
- kind: B
- kind: C
---
not an object
---
kind: [
---
kind: D
`
	var kinds []string
	for _, d := range documents([]byte(file)) {
		kinds = append(kinds, object{content: d}.text("kind"))
	}
	if want := []string{"A", "B", "C", "D"}; !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}
