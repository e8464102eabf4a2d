package build

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestCompressedListsFollowDefinitions checks that a list that was compressed under an older
// definition is not served under a newer one, which has other defaults and prunes other fields.
func TestCompressedListsFollowDefinitions(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	const gadgets, definition = "/apis/example.com/v1/namespaces/default/gadgets", definitionsPath + "/gadgets.example.com"
	with := func(properties string) string {
		return strings.Replace(definitionOf("gadgets", "Gadget", ""), `{"type":"object"}`,
			`{"type":"object","properties":{`+properties+`}}`, 1)
	}
	api.mustSend(201, "POST", definitionsPath, with(`"text":{"type":"string"},"secret":{"type":"string"}`))
	long := strings.Repeat("long ", 1000)
	for i := range 40 {
		api.mustSend(201, "POST", gadgets,
			fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g%d"},"text":%q,"secret":"s"}`,
				i, long))
	}
	// shown counts the objects of a compressed list, and those with each field.
	shown := func() string {
		response := api.mustSend(200, "GET", gadgets, "", "Accept-Encoding", "gzip")
		if response.header.Get("Content-Encoding") != "gzip" {
			t.Fatal("got an uncompressed list, want gzip")
		}
		reader, err := gzip.NewReader(bytes.NewReader(response.body))
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := json.NewDecoder(reader).Decode(&list); err != nil {
			t.Fatal(err)
		}
		secret, color := 0, 0
		for _, o := range list.Items {
			if o["secret"] != nil {
				secret++
			}
			if o["color"] == "red" {
				color++
			}
		}
		return fmt.Sprintf("%d: %d secret, %d red", len(list.Items), secret, color)
	}
	for range 3 { // repeated lists are cached
		if got := shown(); got != "40: 40 secret, 0 red" {
			t.Fatalf("got %s, want 40: 40 secret, 0 red", got)
		}
	}
	api.mustSend(200, "PATCH", definition, with(`"text":{"type":"string"},"color":{"type":"string","default":"red"}`),
		"Content-Type", mergePatch)
	if got := shown(); got != "40: 0 secret, 40 red" {
		t.Errorf("got %s by the new definition, want 40: 0 secret, 40 red", got)
	}
}
