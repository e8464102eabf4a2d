package main

import (
	"os"
	"testing"
)

// TestFactsAreUpToDate compares the committed facts with the source.
func TestFactsAreUpToDate(t *testing.T) {
	want, err := collectFacts()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../facts.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("facts.txt differs from the source: run go generate in package typefacts")
	}
}

// TestDescriptionsKeepParagraphsAndLists checks how the doc comment of a field becomes its
// description.
func TestDescriptionsKeepParagraphsAndLists(t *testing.T) {
	for name, c := range map[string]struct{ doc, want string }{
		"lines are joined":          {doc: "One\ntwo.\n", want: "One two."},
		"paragraphs stay":           {doc: "One.\n\nTwo.\n", want: "One.\n\nTwo."},
		"lists keep their lines":    {doc: "Either\n  - a\n  - b\nis fine.\n", want: "Either\n  - a\n  - b\nis fine."},
		"markers are removed":       {doc: "One.\n+optional\nTODO: more\n", want: "One."},
		"developers' words are cut": {doc: "One.\n---\nTwo.\n", want: "One."},
		"nothing":                   {doc: "", want: ""},
	} {
		if got := description(c.doc); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestEnumValuesAreSortedAndDescribed checks that the constants of an enum type are collected
// from all packages.
func TestEnumValuesAreSortedAndDescribed(t *testing.T) {
	all := []*source{
		{path: "a", enums: map[string]bool{"E": true}, typed: []constant{
			{typ: "a.E", name: "X", text: "x", doc: "X is\n  the first.\n"},
			{typ: "a.Other", name: "Y", text: "y"},
		}},
		{path: "b", typed: []constant{{typ: "a.E", name: "Again", text: "x"}, {typ: "a.E", name: "Z", text: "a"}}},
	}
	all[0].consts = map[string]string{"Text": "y"}
	all[1].aliases = []alias{{name: "b.E", of: "a.E", enum: true}}
	all[1].linked = map[string]string{"Linked": "a.Text"}
	all[1].typed = append(all[1].typed, constant{typ: "b.E", name: "Y", equals: "b.Linked"},
		constant{typ: "b.E", name: "None", equals: "c.None"})
	got := collectEnums(all)["a.E"]
	if len(got) != 3 || got[2] != (value{"y", ""}) || got[0] != (value{"a", ""}) || got[1] != (value{"x", "is the first."}) {
		t.Errorf("got values %v, want a, x with its description, y", got)
	}
	all[1].aliases[0].enum = false
	if got := collectEnums(all)["a.E"]; len(got) != 0 {
		t.Errorf("type without marker: got values %v, want none", got)
	}
}
