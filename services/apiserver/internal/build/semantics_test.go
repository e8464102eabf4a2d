package build

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/config"
)

// TestConcurrentWritersLoseNothing checks that increments by compare-and-swap, and patches of
// different keys, are all applied.
func TestConcurrentWritersLoseNothing(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	api.mustSend(201, "POST", configMaps, configMap("counter", "n", "0"))
	const writers, times = 8, 15
	var wg sync.WaitGroup
	for writer := range writers {
		wg.Go(func() {
			for i := range times {
				for {
					response := api.get(configMaps + "/counter")
					var n int
					_, _ = fmt.Sscan(fmt.Sprint(response.field("data", "n")), &n)
					o := response.object()
					o["data"].(map[string]any)["n"] = fmt.Sprint(n + 1)
					b, _ := json.Marshal(o)
					if put := api.send("PUT", configMaps+"/counter", string(b)); put.code == 200 {
						break
					} else if put.code != 409 {
						t.Errorf("PUT: got status %d: %s, want 200 or 409", put.code, put.body)
						return
					}
				}
				api.mustSend(200, "PATCH", configMaps+"/counter", fmt.Sprintf(`{"data":{"w%d-%d":"x"}}`, writer, i), "Content-Type", mergePatch)
			}
		})
	}
	wg.Wait()
	data := api.get(configMaps + "/counter").field("data").(map[string]any)
	if data["n"] != fmt.Sprint(writers*times) || len(data) != 1+writers*times {
		t.Errorf("got n = %v and %d keys, want %d and %d", data["n"], len(data), writers*times, 1+writers*times)
	}
}

// TestReadsSeeAcknowledgedWrites checks every kind of consistent read directly after a write.
func TestReadsSeeAcknowledgedWrites(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	for i := range 50 {
		name := fmt.Sprint("c", i)
		revision := api.mustSend(201, "POST", configMaps, configMap(name)).resourceVersion()
		if response := api.get(configMaps + "/" + name); response.code != 200 || response.resourceVersion() != revision {
			t.Fatalf("get: got %d at %s, want %s", response.code, response.resourceVersion(), revision)
		}
		if n := len(api.get(configMaps).field("items").([]any)); n != i+1 {
			t.Fatalf("list: got %d items, want %d", n, i+1)
		}
		if n := len(api.get(configMaps + "?resourceVersionMatch=NotOlderThan&resourceVersion=" + revision).field("items").([]any)); n != i+1 {
			t.Fatalf("list not older than %s: got %d items, want %d", revision, n, i+1)
		}
	}
}

// TestPagesHaveOneRevision follows continue tokens while the list changes, and after the version of
// a token was compacted.
func TestPagesHaveOneRevision(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	for i := range 10 {
		api.mustSend(201, "POST", configMaps, configMap(fmt.Sprintf("c%02d", i)))
	}
	first := api.mustSend(200, "GET", configMaps+"?limit=4", "")
	token := fmt.Sprint(first.field("metadata", "continue"))
	if first.field("metadata", "remainingItemCount") != 6.0 {
		t.Errorf("got %v remaining items, want 6", first.field("metadata", "remainingItemCount"))
	}
	api.mustSend(200, "DELETE", configMaps+"/c05", "")
	api.mustSend(201, "POST", configMaps, configMap("c055"))
	next := api.mustSend(200, "GET", configMaps+"?continue="+token, "")
	if got := len(next.field("items").([]any)); got != 6 || next.resourceVersion() != first.resourceVersion() {
		t.Errorf("got %d items at %s, want 6 at %s", got, next.resourceVersion(), first.resourceVersion())
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := json.Unmarshal(raw, &content); err != nil || content["v"] != "meta.k8s.io/v1" || content["start"] != "c03\x00" {
		t.Errorf("got token %s, want version meta.k8s.io/v1 and the start after c03", raw)
	}
	content["rv"] = 1 // a compacted or invalid revision
	raw, _ = json.Marshal(content)
	old := api.get(configMaps + "?limit=4&continue=" + base64.RawURLEncoding.EncodeToString(raw))
	if old.code == 410 {
		again := api.mustSend(200, "GET", configMaps+"?continue="+fmt.Sprint(old.field("metadata", "continue")), "")
		if len(again.field("items").([]any)) != 6 {
			t.Errorf("rest after 410: got %s, want 6 items", again.body)
		}
	} else if old.code != 200 { // a new store may still have revision 1
		t.Errorf("expired token: got status %d: %s, want 410", old.code, old.body)
	}
	for _, bad := range []string{
		"x", "e30",
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":5,"start":"../secrets/"}`)),
	} {
		if response := api.get(configMaps + "?continue=" + bad); response.code != 400 {
			t.Errorf("token %s: got status %d: %s, want 400", bad, response.code, response.body)
		}
	}
}

// bothWays requests a list without compression and with it. It returns both bodies uncompressed.
func (api *testServer) bothWays(accept string) (plain, unzipped []byte) {
	api.t.Helper()
	plain = api.mustSend(200, "GET", configMaps, "", "Accept", accept).body
	zipped := api.mustSend(200, "GET", configMaps, "", "Accept", accept, "Accept-Encoding", "gzip")
	if zipped.header.Get("Content-Encoding") != "gzip" {
		api.t.Fatalf("%s: got an uncompressed response, want gzip", accept)
	}
	reader, err := gzip.NewReader(bytes.NewReader(zipped.body))
	if err != nil {
		api.t.Fatal(err)
	}
	if unzipped, err = io.ReadAll(reader); err != nil {
		api.t.Fatalf("%s: %v", accept, err)
	}
	return plain, unzipped
}

// TestCompressedListEqualsPlainList checks that a compressed list has the same content as an
// uncompressed one, in each form, repeatedly and after changes.
func TestCompressedListEqualsPlainList(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	for i := range 120 {
		api.mustSend(201, "POST", configMaps, configMap(fmt.Sprintf("c%03d", i), "k", strings.Repeat(fmt.Sprint(i), 1500)))
	}
	for round := range 2 {
		for _, accept := range []string{
			"application/json", "application/vnd.kubernetes.protobuf",
			"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
			"application/json;as=Table;g=meta.k8s.io;v=v1",
		} {
			plain, unzipped := api.bothWays(accept)
			for range 5 { // the version of a list changes with other writes
				if bytes.Equal(unzipped, plain) {
					break
				}
				plain, unzipped = api.bothWays(accept)
			}
			if !strings.Contains(accept, "Table") && !bytes.Equal(unzipped, plain) {
				t.Errorf("round %d, %s: got %d bytes, want %d", round, accept, len(unzipped), len(plain))
			}
		}
		api.mustSend(200, "PATCH", configMaps+"/c060", `{"data":{"k":"changed"}}`, "Content-Type", mergePatch)
		api.mustSend(200, "DELETE", fmt.Sprintf("%s/c01%d", configMaps, round), "")
	}
	if response := api.get(configMaps+"/c001", "Accept-Encoding", "gzip"); response.header.Get("Content-Encoding") != "" {
		t.Error("small response: got a Content-Encoding, want none")
	}
}

// TestLargeObjectsAreCompressed checks that responses with a large object are compressed on request.
func TestLargeObjectsAreCompressed(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	body := configMap("large", "k", strings.Repeat("text ", 40000))
	for _, test := range []struct{ method, path, body, contentType string }{
		{method: "POST", path: configMaps, body: body},
		{method: "GET", path: configMaps + "/large"},
		{method: "PUT", path: configMaps + "/large", body: body},
		{method: "PATCH", path: configMaps + "/large", body: `{"metadata":{"labels":{"a":"b"}}}`, contentType: mergePatch},
	} {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			path := test.path
			if test.method == "POST" && accept != "application/json" {
				path += "?dryRun=All&fieldManager=m"
				test.body = configMap("large-2", "k", strings.Repeat("text ", 40000))
			}
			header := []string{"Accept", accept, "Accept-Encoding", "gzip"}
			if test.contentType != "" {
				header = append(header, "Content-Type", test.contentType)
			}
			response := api.send(test.method, path, test.body, header...)
			if response.code >= 300 || response.header.Get("Content-Encoding") != "gzip" || len(response.body) > 100000 {
				t.Errorf("%s, %s: got status %d, %d bytes in encoding %q, want success and at most 100000 in gzip",
					test.method, accept, response.code, len(response.body),
					response.header.Get("Content-Encoding"))
			}
		}
	}
}

// watchEvents returns the events of a watch: at most limit, fewer if the stream ends before.
func (api *testServer) watchEvents(path string, limit int) (out []map[string]any) {
	api.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", api.url+path, nil)
	if err != nil {
		api.t.Fatal(err)
	}
	httpResponse, err := api.client.Do(req)
	if err != nil {
		api.t.Fatal(err)
	}
	defer httpResponse.Body.Close()
	lines := bufio.NewScanner(httpResponse.Body)
	lines.Buffer(nil, 4<<20)
	for len(out) < limit && lines.Scan() {
		var e map[string]any
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			api.t.Errorf("event %s: %v", lines.Bytes(), err)
		}
		out = append(out, e)
	}
	return out
}

// TestWatchListStreamsInitialState checks the initial objects and the bookmark that follows them.
func TestWatchListStreamsInitialState(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		if err := options.Features.Set(string(features.WatchList) + "=true"); err != nil {
			t.Fatal(err)
		}
	})
	revision := ""
	for i := range 3 {
		revision = api.mustSend(201, "POST", configMaps, configMap(fmt.Sprint("c", i))).resourceVersion()
	}
	got := api.watchEvents(configMaps+
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion="+
		revision,
		4)
	if len(got) != 4 {
		t.Fatalf("got %d events, want 4", len(got))
	}
	for _, event := range got[:3] {
		if event["type"] != "ADDED" {
			t.Errorf("got event %v, want ADDED", event)
		}
	}
	meta := got[3]["object"].(map[string]any)["metadata"].(map[string]any)
	if got[3]["type"] != "BOOKMARK" || meta["annotations"].(map[string]any)["k8s.io/initial-events-end"] != "true" {
		t.Errorf("got final event %v, want a BOOKMARK that ends the initial events", got[3])
	}
}

// TestBookmarkPrecedesTimeout checks that an idle watch receives a bookmark before it ends.
func TestBookmarkPrecedesTimeout(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	revision := api.get(configMaps).resourceVersion()
	later := api.mustSend(201, "POST", api.namespaced("secrets"), `{"metadata":{"name":"elsewhere"}}`).resourceVersion()
	got := api.watchEvents(configMaps+"?watch=1&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion="+revision, 1)
	if len(got) != 1 || got[0]["type"] != "BOOKMARK" {
		t.Fatalf("got events %v, want one BOOKMARK", got)
	}
	seen := fmt.Sprint(got[0]["object"].(map[string]any)["metadata"].(map[string]any)["resourceVersion"])
	if len(seen) < len(later) || len(seen) == len(later) && seen < later {
		t.Errorf("got a bookmark at %s, want one at the acknowledged %s or later", seen, later)
	}
}

// TestWatchesEndAtShutdown checks that a graceful shutdown does not wait for watches.
func TestWatchesEndAtShutdown(t *testing.T) {
	t.Parallel()
	ended := make(chan int, 1)
	t.Run("server", func(t *testing.T) {
		api := startServer(t, nil)
		opened := make(chan struct{})
		go func() {
			httpResponse, err := api.client.Get(api.url + configMaps + "?watch=1")
			if err != nil {
				ended <- -1
				close(opened)
				return
			}
			close(opened)
			b, _ := io.ReadAll(httpResponse.Body)
			httpResponse.Body.Close()
			ended <- len(b)
		}()
		<-opened
	})
	select {
	case n := <-ended:
		if n < 0 {
			t.Error("got no open watch, want one")
		}
	case <-time.After(20 * time.Second):
		t.Error("the watch outlives its server by 20 s, want it closed")
	}
}

// TestRequestsBeyondLimitAreRejected checks that requests beyond the limit get 429, except those of
// administrators.
func TestRequestsBeyondLimitAreRejected(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		options.Requests.MaxInFlight, options.Requests.PriorityAndFairness = 1, false
	})
	var clients sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range 16 {
		clients.Go(func() {
			for range 5 {
				// A list of a future version blocks for 3 s, or until its own timeout.
				response := api.get(configMaps+"?resourceVersion=999999999&timeout=200ms", asUser("alice")...)
				mu.Lock()
				codes[response.code]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if codes[http.StatusTooManyRequests] == 0 || codes[http.StatusGatewayTimeout] == 0 {
		t.Errorf("got responses by status %v, want some with 429 and some with 504", codes)
	}
	api.mustSend(200, "GET", configMaps, "")
}

// TestInvalidRequestsDoNotPanic checks that malformed requests get a Status with a code from 400 to most.
func TestInvalidRequestsDoNotPanic(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	configMaps := api.namespaced("configmaps")
	for _, test := range []struct {
		method, path, body, contentType string
		most                            int
	}{
		{method: "POST", path: configMaps, most: 400},
		{method: "POST", path: configMaps, body: "null", most: 422},
		{method: "POST", path: configMaps, body: "\x00\x01", contentType: "application/vnd.kubernetes.protobuf", most: 415},
		{
			method:      "POST",
			path:        configMaps,
			body:        "k8s\x00\xff\xff\xff",
			contentType: "application/vnd.kubernetes.protobuf",
			most:        400,
		},
		{method: "POST", path: configMaps, body: strings.Repeat("[", 100000), most: 400},
		{
			method:      "POST",
			path:        configMaps,
			body:        strings.Repeat("a: &a [*a]\n", 10),
			contentType: "application/yaml",
			most:        400,
		},
		{
			method:      "PATCH",
			path:        configMaps + "/none",
			body:        `[{"op":"remove"}]`,
			contentType: "application/json-patch+json",
			most:        404,
		},
		{
			method:      "PATCH",
			path:        "/api/v1/namespaces/default",
			body:        `[{"op":"remove","path":"/metadata"}]`,
			contentType: "application/json-patch+json",
			most:        422,
		},
		{
			method:      "PATCH",
			path:        "/api/v1/namespaces/default",
			body:        `[{"op":"test","path":"/metadata/name","value":"x"}]`,
			contentType: "application/json-patch+json",
			most:        422,
		},
		{method: "PATCH", path: "/api/v1/namespaces/default", body: `[]`, contentType: mergePatch, most: 400},
		{method: "PATCH", path: "/api/v1/namespaces/default", body: `{"metadata":null}`, contentType: mergePatch, most: 422},
		{
			method:      "PATCH",
			path:        "/api/v1/namespaces/default",
			body:        `{"metadata":{"labels":{"$patch":1}}}`,
			contentType: "application/strategic-merge-patch+json",
			most:        422,
		},
		{
			method:      "PATCH",
			path:        "/api/v1/namespaces/default",
			body:        `{}`,
			contentType: "application/apply-patch+yaml",
			most:        422,
		},
		{
			method:      "PATCH",
			path:        "/api/v1/namespaces/default?fieldManager=m",
			body:        `{}`,
			contentType: "application/apply-patch+yaml",
			most:        400,
		},
		{
			method:      "PATCH",
			path:        "/api/v1/namespaces/default?fieldManager=m",
			body:        `[1`,
			contentType: "application/apply-patch+yaml",
			most:        400,
		},
		{
			method:      "PATCH",
			path:        "/api/v1/namespaces/default?fieldManager=m",
			body:        `null`,
			contentType: "application/apply-patch+yaml",
			most:        400,
		},
		{method: "DELETE", path: configMaps + "/x", body: `{"kind":"Pod","apiVersion":"v1"}`, most: 404},
		{method: "DELETE", path: configMaps + "/x", body: `[`, most: 400},
		{method: "GET", path: configMaps + "?limit=x", most: 400},
		{method: "GET", path: configMaps + "?resourceVersion=-1", most: 400},
		{method: "GET", path: configMaps + "?resourceVersionMatch=Exact", most: 422},
		{method: "GET", path: configMaps + "?resourceVersionMatch=Odd&resourceVersion=5", most: 422},
		{method: "GET", path: configMaps + "?timeout=never", most: 400},
		{method: "PUT", path: configMaps + "/a", body: configMap("b"), most: 400},
		{method: "PUT", path: configMaps + "/a", body: `{}`, most: 400},
		{method: "GET", path: "/api/v1/namespaces/default/configmaps/a/b/c/d", most: 404},
	} {
		response := api.send(test.method, test.path, test.body, "Content-Type", test.contentType)
		if response.code < 400 || response.code > test.most || response.code >= 500 {
			t.Errorf("%s %s %.40q: got status %d: %.200s, want one from 400 to %d", test.method, test.path, test.body, response.code, response.body, test.most)
		}
		if response.field("kind") != "Status" && response.code != 404 {
			t.Errorf("%s %s: got %.100s, want a Status", test.method, test.path, response.body)
		}
	}
	api.mustSend(200, "GET", "/healthz", "")
}

// TestResumedWatchReceivesAllDeletionsOfLease checks that a client that is disconnected while etcd deletes all
// objects of a lease at one revision receives each deletion after it resumes.
func TestResumedWatchReceivesAllDeletionsOfLease(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const n, cut = 150, 20
	const path = "/api/v1/namespaces/default/events"
	api := startServer(t, onEtcd(t))
	revision := ""
	for i := range n {
		revision = api.mustSend(201, "POST", path,
			fmt.Sprintf(`{"metadata":{"name":"e%d"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"},"reason":"r","type":"Normal"}`,
				i)).resourceVersion()
	}
	store := api.server.stores.etcd.Client()
	leases, err := store.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Leases {
		if keys, err := store.TimeToLive(t.Context(), lease.ID); err != nil || keys.GrantedTTL < 3600 {
			continue // leader election
		}
		if _, err := store.Revoke(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	name := func(event map[string]any) (string, string) {
		meta := event["object"].(map[string]any)["metadata"].(map[string]any)
		return fmt.Sprint(meta["name"]), fmt.Sprint(meta["resourceVersion"])
	}
	first := api.watchEvents(path+"?watch=1&timeoutSeconds=10&resourceVersion="+revision, cut)
	last := ""
	for _, event := range first {
		if event["type"] != "DELETED" {
			t.Fatalf("got event %v, want DELETED", event)
		}
		object, at := name(event)
		seen[object], last = true, at
	}
	for _, event := range api.watchEvents(path+"?watch=1&timeoutSeconds=5&resourceVersion="+last, n) {
		object, _ := name(event)
		seen[object] = true
	}
	if len(seen) != n {
		t.Errorf("got %d deletions, want %d", len(seen), n)
	}
}
