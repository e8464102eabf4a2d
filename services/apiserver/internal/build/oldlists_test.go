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

// TestListsOfOldVersions checks that a list is the same in every form, whether it comes from the
// cache or, once the cache has dropped the version, from the store in pages.
func TestListsOfOldVersions(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := start(t, func(o *config.Options) {
		if err := o.Features.Set(string(features.CBORServingAndStorage) + "=true"); err != nil {
			t.Fatal(err)
		}
		o.Memory.Caches = 1 << 20
		o.Memory.History = 1 << 10
	})

	// 1. Store more than the caches hold.
	large := strings.Repeat("this is a line of some length\n", 12500)
	for i := range 12 {
		api.want(201, "POST", configMaps, configMap(fmt.Sprint("large-", i), "text", large, "odd", "\u0085\x7f"))
	}
	version := api.get(configMaps).version()
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
		answer := api.want(200, "GET", configMaps+"?resourceVersionMatch=Exact&resourceVersion="+version+query, "",
			"Accept", accept, "Accept-Encoding", encoding)
		if (answer.header.Get("Content-Encoding") == "gzip") != (encoding == "gzip") {
			t.Errorf("Accept-Encoding %q: got Content-Encoding %q, want gzip only on request", encoding, answer.header.Get("Content-Encoding"))
		}
		if encoding == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(answer.body))
			if err != nil {
				t.Fatal(err)
			}
			if answer.body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(accept, "Table") {
			return answer.body
		}
		return ages.ReplaceAll(answer.body, []byte(`"age"`))
	}

	// 2. Read the list in all forms while the cache has its version.
	cached := map[string][]byte{}
	for _, f := range forms {
		cached[f.name] = read(f.query, f.accept, f.encoding)
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
		api.want(200, "PUT", configMaps+"/large-"+fmt.Sprint(i%12), configMap("large-"+fmt.Sprint(i%12), "text", large+fmt.Sprint(i)))
	}

	// 4. The lists that are read from etcd now must equal those from the cache.
	for _, f := range forms {
		got := read(f.query, f.accept, f.encoding)
		want := cached[f.name]
		if f.accept == cborType { // field order is undefined
			same := reflect.DeepEqual(readCBOR[any](t, got), readCBOR[any](t, want))
			if !same {
				t.Errorf("%s: got another list than before, want the same", f.name)
			}
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %d from the cache:\n%.300q\n%.300q", f.name, len(got), len(want), got, want)
		}
	}
	// The rest of a list that started at the old version.
	first := api.get(configMaps + "?resourceVersionMatch=Exact&limit=7&resourceVersion=" + version)
	rest := api.get(configMaps + "?limit=7&continue=" + fmt.Sprint(first.at("metadata", "continue")))
	if n, m := len(first.at("items").([]any)), len(rest.at("items").([]any)); n != 7 ||
		m != len(cachedItems(api, version))-7 ||
		fmt.Sprint(first.at("metadata", "remainingItemCount")) != fmt.Sprint(m) {
		t.Errorf("got pages of %d and %d items, metadata %v, want 7 and the remaining items", n, m, first.at("metadata"))
	}
	expireByCompaction(t, api)
}

// expireByCompaction checks that a list cannot be continued, or read at its version, once the store
// has compacted that version, although the resource has not changed and the cache has it.
func expireByCompaction(t *testing.T, a *api) {
	first := a.get(configMaps + "?limit=7")
	exact := configMaps + "?resourceVersionMatch=Exact&resourceVersion=" + first.version()
	next := configMaps + "?limit=7&continue=" + fmt.Sprint(first.at("metadata", "continue"))
	a.want(200, "GET", exact, "")
	rest := a.get(next)
	other := a.want(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"newer"}}`)
	revision, err := strconv.ParseInt(other.version(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.server.stores.store.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	a.want(410, "GET", exact, "")
	a.want(410, "GET", exact+"&limit=7", "")
	for _, accept := range []string{
		"application/json", "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;v=v1;g=meta.k8s.io",
	} {
		a.want(410, "GET", next, "", "Accept", accept)
	}
	expired := a.want(410, "GET", next, "")
	again := a.get(configMaps + "?limit=7&continue=" + fmt.Sprint(expired.at("metadata", "continue")))
	if got, want := fmt.Sprint(again.at("items")), fmt.Sprint(rest.at("items")); got != want {
		t.Errorf("the fresh token continues with %.300s, want %.300s", got, want)
	}
}

func cachedItems(a *api, version string) []any {
	return a.get(configMaps + "?resourceVersionMatch=Exact&resourceVersion=" + version).at("items").([]any)
}
