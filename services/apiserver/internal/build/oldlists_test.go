package build

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/config"
)

var ages = regexp.MustCompile(`"(\d+[hms])+"`)

// TestListsOfOldRevisionsAreEqualInAllForms checks that a list is the same in every form, whether it comes from the
// cache or, once the cache has dropped the version, from the store in pages.
func TestListsOfOldRevisionsAreEqualInAllForms(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		if err := options.Features.Set(string(features.CBORServingAndStorage) + "=true"); err != nil {
			t.Fatal(err)
		}
		options.Memory.Caches = 1 << 20
		options.Memory.History = 1 << 10
	})

	// 1. Store more than the caches hold.
	large := strings.Repeat("this is a line of some length\n", 12500)
	for i := range 12 {
		api.mustSend(201, "POST", configMaps, configMap(fmt.Sprint("large-", i), "text", large, "odd", "\u0085\x7f"))
	}
	version := api.get(configMaps).resourceVersion()
	forms := []struct{ name, query, accept, encoding string }{
		{name: "JSON", accept: "application/json"},
		{name: "JSON, compressed", accept: "application/json", encoding: "gzip"},
		{name: "indented", query: "&pretty=1", accept: "application/json"},
		{name: "YAML", accept: "application/yaml"},
		{name: "protobuf", accept: "application/vnd.kubernetes.protobuf"},
		{name: "protobuf, compressed", accept: "application/vnd.kubernetes.protobuf", encoding: "gzip"},
		{name: "CBOR", accept: cborType},
		{name: "metadata", accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		{
			name:   "metadata in protobuf",
			accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		},
		{name: "table", accept: "application/json;as=Table;v=v1;g=meta.k8s.io"},
		{
			name:     "table with objects",
			query:    "&includeObject=Object",
			accept:   "application/json;as=Table;v=v1;g=meta.k8s.io",
			encoding: "gzip",
		},
		{name: "selected", query: "&fieldSelector=metadata.name%3Dlarge-3", accept: "application/json"},
		{name: "none", query: "&labelSelector=a%3Db", accept: "application/yaml"},
		{name: "first part", query: "&limit=9", accept: "application/vnd.kubernetes.protobuf"},
		{name: "selected first part", query: "&limit=9&fieldSelector=metadata.name!%3Dlarge-3", accept: "application/json"},
	}
	read := func(query, accept, encoding string) []byte {
		t.Helper()
		response := api.mustSend(200, "GET", configMaps+"?resourceVersionMatch=Exact&resourceVersion="+version+query, "",
			"Accept", accept, "Accept-Encoding", encoding)
		if (response.header.Get("Content-Encoding") == "gzip") != (encoding == "gzip") {
			t.Errorf("Accept-Encoding %q: got Content-Encoding %q, want gzip only on request", encoding, response.header.Get("Content-Encoding"))
		}
		if encoding == "gzip" {
			reader, err := gzip.NewReader(bytes.NewReader(response.body))
			if err != nil {
				t.Fatal(err)
			}
			if response.body, err = io.ReadAll(reader); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(accept, "Table") {
			return response.body
		}
		return ages.ReplaceAll(response.body, []byte(`"age"`))
	}

	// 2. Read the list in all forms while the cache has its version.
	cached := map[string][]byte{}
	for _, form := range forms {
		cached[form.name] = read(form.query, form.accept, form.encoding)
	}

	// 3. Write until the cache has forgotten the version.
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	store := api.server.caches.cache.Store("/registry/configmaps/")
	for i := 0; ; i++ {
		if _, ok := store.SnapshotAt(revision, nil); !ok {
			break
		}
		api.mustSend(200, "PUT", configMaps+"/large-"+fmt.Sprint(i%12), configMap("large-"+fmt.Sprint(i%12), "text", large+fmt.Sprint(i)))
	}

	// 4. The lists that are read from etcd now must equal those from the cache.
	for _, form := range forms {
		got := read(form.query, form.accept, form.encoding)
		want := cached[form.name]
		if form.accept == cborType { // field order is undefined
			same := reflect.DeepEqual(readCBOR[any](t, got), readCBOR[any](t, want))
			if !same {
				t.Errorf("%s: got another list than before, want the same", form.name)
			}
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %d from the cache:\n%.300q\n%.300q", form.name, len(got), len(want), got, want)
		}
	}
	// The rest of a list that started at the old version.
	first := api.get(configMaps + "?resourceVersionMatch=Exact&limit=7&resourceVersion=" + version)
	rest := api.get(configMaps + "?limit=7&continue=" + fmt.Sprint(first.field("metadata", "continue")))
	if n, m := len(first.field("items").([]any)), len(rest.field("items").([]any)); n != 7 ||
		m != len(cachedItems(api, version))-7 ||
		fmt.Sprint(first.field("metadata", "remainingItemCount")) != fmt.Sprint(m) {
		t.Errorf("got pages of %d and %d items, metadata %v, want 7 and the remaining items", n, m, first.field("metadata"))
	}
	expireByCompaction(t, api)
}

// expireByCompaction checks that a list cannot be continued, or read at its version, once the store
// has compacted that version, although the resource has not changed and the cache has it.
func expireByCompaction(t *testing.T, api *testServer) {
	first := api.get(configMaps + "?limit=7")
	exact := configMaps + "?resourceVersionMatch=Exact&resourceVersion=" + first.resourceVersion()
	next := configMaps + "?limit=7&continue=" + fmt.Sprint(first.field("metadata", "continue"))
	api.mustSend(200, "GET", exact, "")
	rest := api.get(next)
	other := api.mustSend(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"newer"}}`)
	revision, err := strconv.ParseInt(other.resourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.server.stores.store.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	api.mustSend(410, "GET", exact, "")
	api.mustSend(410, "GET", exact+"&limit=7", "")
	for _, accept := range []string{
		"application/json", "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;v=v1;g=meta.k8s.io",
	} {
		api.mustSend(410, "GET", next, "", "Accept", accept)
	}
	expired := api.mustSend(410, "GET", next, "")
	again := api.get(configMaps + "?limit=7&continue=" + fmt.Sprint(expired.field("metadata", "continue")))
	if got, want := fmt.Sprint(again.field("items")), fmt.Sprint(rest.field("items")); got != want {
		t.Errorf("the fresh token continues with %.300s, want %.300s", got, want)
	}
}

func cachedItems(api *testServer, version string) []any {
	return api.get(configMaps + "?resourceVersionMatch=Exact&resourceVersion=" + version).field("items").([]any)
}
