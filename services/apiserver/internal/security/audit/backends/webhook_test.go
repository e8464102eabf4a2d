package backends

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// webhookServer is a webhook that records its requests.
type webhookServer struct {
	*httptest.Server
	mu    sync.Mutex
	posts [][]string // ids
	heads []string
}

// newWebhookServer starts a webhook that answers with answer, or 200.
func newWebhookServer(t *testing.T, plain bool, answer http.HandlerFunc) *webhookServer {
	server := &webhookServer{}
	server.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var list struct {
			Kind, APIVersion string
			Items            []struct{ AuditID string }
		}
		if err := json.Unmarshal(body, &list); err != nil || list.Kind != "EventList" || list.APIVersion != "audit.k8s.io/v1" {
			t.Errorf("got body %s, error %v; want an EventList", body, err)
		}
		var ids []string
		for _, e := range list.Items {
			ids = append(ids, e.AuditID)
		}
		server.mu.Lock()
		server.posts = append(server.posts, ids)
		server.heads = append(server.heads,
			strings.Join([]string{
				r.Proto, r.Method, r.RequestURI, r.Header.Get("Accept"),
				r.Header.Get("Content-Type"), r.UserAgent(), r.Header.Get("Authorization"),
			},
				"|"))
		server.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	server.EnableHTTP2 = true
	if plain {
		server.Start()
	} else {
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	return server
}

func (server *webhookServer) batches() [][]string {
	server.mu.Lock()
	defer server.mu.Unlock()
	return append([][]string(nil), server.posts...)
}

// TestWebhookReceivesEventList checks the protocol, the path and the header fields of a post, with and
// without TLS.
func TestWebhookReceivesEventList(t *testing.T) {
	for plain, want := range map[bool]string{
		false: "HTTP/2.0|POST|/audit?timeout=30s|application/json, */*|application/json|Go-http-client/2.0|Bearer secret",
		true:  "HTTP/1.1|POST|/audit?timeout=30s|application/json, */*|application/json|Go-http-client/1.1|",
	} {
		f := newFixture(t)
		server := newWebhookServer(t, plain, nil)
		b := f.newWebhook(webhookOptions(t, server.Server))
		stop := f.runBackend(b)
		_ = b.Process(t.Context(), newEvent(1, 10))
		f.awaitTrue("posted", func() bool { return len(server.batches()) == 1 })
		stop()
		if got := strings.TrimSuffix(server.heads[0], "Bearer secret"); got != strings.TrimSuffix(want, "Bearer secret") {
			t.Errorf("without TLS: %t: got request %s, want %s", plain, got, want)
		}
	}
}

// TestFailedPostIsRetried checks that a failed post is retried maxPosts times, then its events are
// counted as lost.
func TestFailedPostIsRetried(t *testing.T) {
	for _, mode := range Modes() {
		fixture := newFixture(t)
		server := newWebhookServer(t, false, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusInternalServerError)
		})
		o := webhookOptions(t, server.Server)
		o.Mode = mode
		b := fixture.newWebhook(o)
		stop := fixture.runBackend(b)
		err := b.Process(t.Context(), newEvent(1, 0))
		fixture.awaitTrue("lost", func() bool { return fixture.lostEvents(webhookName) == 1 })
		stop()
		if n := len(server.batches()); n != maxPosts {
			t.Errorf("%s: got %d posts, want %d", mode, n, maxPosts)
		}
		if strict := mode == string(BlockingStrict); (err != nil) != strict {
			t.Errorf("%s: got error %v, want %v", mode, err, strict)
		}
		fixture.wantLost(webhookName, 1)
		if !strings.Contains(fixture.logs.String(), "500") {
			t.Errorf("got log %s, want the status 500", fixture.logs)
		}
	}
}

// TestRecoveredWebhookLosesNothing checks that an event survives several failed posts.
func TestRecoveredWebhookLosesNothing(t *testing.T) {
	fixture := newFixture(t)
	var mu sync.Mutex
	failing := 3
	server := newWebhookServer(t, false, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		failing--
		if failing >= 0 {
			panic(http.ErrAbortHandler)
		}
	})
	b := fixture.newWebhook(webhookOptions(t, server.Server))
	stop := fixture.runBackend(b)
	_ = b.Process(t.Context(), newEvent(1, 0))
	fixture.awaitTrue("posted", func() bool { return len(server.batches()) == 4 })
	stop()
	fixture.wantLost(webhookName, 0)
}

// TestHangingWebhookBlocksNoRequestInBatchMode checks that a hanging webhook does not block
// requests in batch mode, and blocks them for a limited time in the other modes.
func TestHangingWebhookBlocksNoRequestInBatchMode(t *testing.T) {
	release := make(chan struct{})
	server := newWebhookServer(t, false, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	fixture := newFixture(t)
	options := webhookOptions(t, server.Server)
	options.Batch.BufferSize, options.Batch.MaxSize = 5, 1
	b := fixture.newWebhook(options)
	b.flushTimeout = 50 * time.Millisecond
	stop := fixture.runBackend(b)
	for n := range maxConcurrentPosts {
		_ = b.Process(t.Context(), newEvent(n, 0))
		fixture.awaitTrue("asked", func() bool { return len(server.batches()) > n })
	}
	for n := range 7 {
		_ = b.Process(t.Context(), newEvent(100+n, 0))
	}
	if n := fixture.lostEvents(pluginBuffer); n < 1 || n > 2 { // one may be in delivery
		t.Errorf("got %d lost events, want 1 or 2", n)
	}
	options.Mode = string(BlockingStrict)
	strict := fixture.newWebhook(options)
	strict.deliverer.(*webhookDeliverer).timeout = 50 * time.Millisecond
	if err := strict.Process(t.Context(), newEvent(200, 0)); err == nil {
		t.Error("Process of a lost event: got no error, want one")
	}
	stop() // undelivered events are lost
	if got := fixture.lostEvents(pluginBuffer) + fixture.lostEvents(webhookName); got != maxConcurrentPosts+7+1 {
		t.Errorf("got %d lost events, want %d", got, maxConcurrentPosts+7+1)
	}
}

// TestUnreachableWebhookDoesNotPreventStart checks that the events for an unreachable webhook are
// counted as lost.
func TestUnreachableWebhookDoesNotPreventStart(t *testing.T) {
	f := newFixture(t)
	server := newWebhookServer(t, false, nil)
	o := webhookOptions(t, server.Server)
	server.Close()
	b := f.newWebhook(o)
	stop := f.runBackend(b)
	_ = b.Process(t.Context(), newEvent(1, 0))
	f.awaitTrue("lost", func() bool { return f.lostEvents(webhookName) == 1 })
	stop()
	f.wantLost(webhookName, 1)
}

// TestInvalidKubeconfigIsRejected checks that NewWebhook returns an error for an unusable
// kubeconfig.
func TestInvalidKubeconfigIsRejected(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"none":     "",
		"nonsense": "{",
		"address":  `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"ftp://x"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`,
	} {
		file := dir + "/" + name
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := NewWebhook(&WebhookOptions{ConfigFile: file}, newFixture(t).config); err == nil {
			t.Errorf("%s: got no error, want an error", name)
		}
	}
}
