package build

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// metricValue returns the value of a metric line.
func (api *testServer) metricValue(line string) float64 {
	api.t.Helper()
	scanner := bufio.NewScanner(bytes.NewReader(api.get("/metrics").body))
	for scanner.Scan() {
		if value, ok := strings.CutPrefix(scanner.Text(), line+" "); ok {
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				api.t.Fatal(err)
			}
			return number
		}
	}
	return -1
}

// TestConsistentReadsAreCounted checks that only consistent reads count, by resource.
func TestConsistentReadsAreCounted(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	const line = `apiserver_watch_cache_consistent_read_total{fallback="false",resource="replicasets.apps",success="true"}`
	if n := api.metricValue(line); n != 0 {
		t.Fatalf("before any read: got count %v, want 0", n)
	}
	const path = "/apis/apps/v1/namespaces/default/replicasets"
	for _, path := range []string{path, path + "?limit=5", path + "/none", path + "?resourceVersion=0"} {
		api.get(path)
	}
	if n := api.metricValue(line); n != 3 {
		t.Errorf("got %v counted reads, want 3", n)
	}
}

// TestWatchOfSlowReaderEnds checks that the watch of a slow client ends, over HTTP/1 and HTTP/2, when the
// history that it needs is gone. Other watches continue.
func TestWatchOfSlowReaderEnds(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, func(options *config.Options) { options.Memory.History = 1 << 20 })
	const path, n = "/api/v1/namespaces/default/configmaps", 16
	value := strings.Repeat("x", 1000<<10)
	for i := range n {
		api.mustSend(201, "POST", path, fmt.Sprintf(`{"metadata":{"name":"m%d"},"data":{"v":%q}}`, i, value))
	}
	const line = `binnacle_watch_cache_watchers{resource="configmaps"}`
	others := api.metricValue(line)
	httpResponse, err := api.client.Get(api.url + path + "?watch=1&timeoutSeconds=600") // HTTP/2
	if err != nil {
		t.Fatal(err)
	}
	defer httpResponse.Body.Close()
	if httpResponse.ProtoMajor != 2 {
		t.Errorf("got protocol %s, want HTTP/2", httpResponse.Proto)
	}
	transport := api.client.Transport.(*http.Transport)
	conn, err := tls.DialWithDialer(&net.Dialer{}, "tcp", strings.TrimPrefix(api.url, "https://"), &tls.Config{
		InsecureSkipVerify: true,
		Certificates:       transport.TLSClientConfig.Certificates,
		NextProtos:         []string{"http/1.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s?watch=1&timeoutSeconds=600 HTTP/1.1\r\nHost: test\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	api.waitUntil("watching", func() bool { return api.metricValue(line) == others+2 })
	for i := range n {
		api.mustSend(200, "PUT", path+fmt.Sprintf("/m%d", i), fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i))
	}
	api.waitUntil("ended", func() bool { return api.metricValue(line) == others })
	if objects := api.metricValue(`apiserver_terminated_watchers_total{resource="configmaps"}`); objects != 2 {
		t.Errorf("got %v terminated watchers, want 2", objects)
	}
}

// TestSelectorsOfWatchesAreLimited checks that the watches of one user cannot keep any number of
// large selectors in memory, and that the memory is free again when they end.
func TestSelectorsOfWatchesAreLimited(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	selector := "a+in+(v" + strings.Repeat(",v", 150_000) + ")"
	watch := func(user, selector string) *http.Response {
		req, err := http.NewRequest("GET", api.url+configMaps+"?watch=1&timeoutSeconds=600&labelSelector="+selector, nil)
		if err != nil {
			t.Fatal(err)
		}
		headers := asUser(user)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		httpResponse, err := api.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { httpResponse.Body.Close() })
		return httpResponse
	}
	var watches []*http.Response
	for len(watches) < 100 {
		httpResponse := watch("carol", selector)
		if httpResponse.StatusCode == http.StatusTooManyRequests {
			break
		}
		watches = append(watches, httpResponse)
	}
	if n := len(watches); n == 0 || n == 100 {
		t.Fatalf("got %d of 100 watches with large selectors admitted, want some and not all", n)
	}
	for user, selector := range map[string]string{"dave": selector, "carol": "a"} {
		if httpResponse := watch(user, selector); httpResponse.StatusCode != http.StatusOK {
			t.Errorf("watch of %s with a selector of %d bytes: got %s, want 200", user, len(selector), httpResponse.Status)
		}
	}
	for _, watchResponse := range watches {
		watchResponse.Body.Close()
	}
	api.waitUntil("room for selectors", func() bool { return watch("carol", selector).StatusCode == http.StatusOK })
}

// TestSecretsAreNotInDictionary checks that parts of ConfigMaps are shared, and that parts of
// secrets are not kept after their deletion.
func TestSecretsAreNotInDictionary(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	text := strings.Repeat("This text occurs in many objects. ", 200)
	for i := range 40 {
		api.mustSend(201, "POST", "/api/v1/namespaces/default/configmaps",
			fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"k":%q}}`, i, text))
		api.mustSend(201, "POST", "/api/v1/namespaces/default/secrets",
			fmt.Sprintf(`{"metadata":{"name":"s%d"},"stringData":{"k":%q}}`, i, text))
	}
	valueBytes := func(resource string) (stored, kept float64) {
		return api.metricValue(`binnacle_watch_cache_value_bytes{resource="` +
			resource + `"}`), api.metricValue(`binnacle_watch_cache_value_kept_bytes{resource="` + resource + `"}`)
	}
	if stored, kept := valueBytes("configmaps"); kept > stored*3/4 {
		t.Errorf("ConfigMaps of %v bytes: got %v bytes in the cache, want at most three quarters", stored, kept)
	}
	if stored, kept := valueBytes("secrets"); kept < stored {
		t.Errorf("Secrets of %v bytes: got %v bytes in the cache, want no fewer: they are not compressed", stored, kept)
	}
}
