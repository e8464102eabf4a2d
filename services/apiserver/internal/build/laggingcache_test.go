package build

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage"
)

// laggingSource delays events while it lags, until a reader waits for them. A reader that does not
// wait sees an old state.
type laggingSource struct {
	watchcache.Source
	lags      atomic.Bool
	requested chan struct{}
}

// startLagging starts a server whose cache can lag.
func startLagging(t *testing.T, configure ...func(*config.Options)) (*testServer, *laggingSource) {
	t.Helper()
	source := &laggingSource{requested: make(chan struct{}, 1)}
	api := startServer(t, func(options *config.Options) {
		for _, set := range configure {
			set(options)
		}
		options.WrapSource = func(s watchcache.Source) watchcache.Source {
			source.Source = s
			return source
		}
	})
	source.lags.Store(true)
	t.Cleanup(func() { source.lags.Store(false); source.let() })
	return api, source
}

func (l *laggingSource) let() {
	select {
	case l.requested <- struct{}{}:
	default:
	}
}

// Progress implements watchcache.Source. The cache calls it while a reader waits.
func (l *laggingSource) Progress(ctx context.Context) error {
	l.let()
	return l.Source.Progress(ctx)
}

// Follow implements watchcache.Source.
func (l *laggingSource) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	return l.Source.Follow(ctx, from, func(batch storage.Batch) error {
		if l.lags.Load() && len(batch.Events) > 0 {
			select { // drop earlier waits
			case <-l.requested:
			default:
			}
			select {
			case <-l.requested:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return apply(batch)
	})
}

// TestAcknowledgedWritesApplyToNextRequest checks that a client meets the effect of its own write
// in the next request, however far the cache lags.
func TestAcknowledgedWritesApplyToNextRequest(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api, _ := startLagging(t)
	hook, _ := newRejectingWebhook(t, "")
	const patch = "application/merge-patch+json"
	for i := range 3 {
		namespace := fmt.Sprintf("/api/v1/namespaces/n-%d", i)
		api.mustSend(201, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":"n-%d"}}`, i))
		api.mustSend(201, "POST", namespace+"/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"0"}}}`)
		api.mustSend(200, "PATCH", namespace+"/resourcequotas/q/status",
			`{"status":{"hard":{"count/configmaps":"0"},"used":{"count/configmaps":"0"}}}`, "Content-Type",
			patch)
		api.mustSend(403, "POST", namespace+"/configmaps", `{"metadata":{"name":"c"}}`)
		api.mustSend(200, "DELETE", namespace+"/resourcequotas/q", "")
		api.mustSend(201, "POST", namespace+"/configmaps", `{"metadata":{"name":"c"}}`)

		api.mustSend(201, "POST", namespace+"/limitranges",
			`{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{"cpu":"1"}}]}}`)
		pod := api.mustSend(201, "POST", namespace+"/pods?dryRun=All", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
		if !strings.Contains(string(pod.body), `"limits":{"cpu":"1"}`) {
			t.Fatalf("got pod %s, want the limits of the LimitRange", pod.body)
		}
		api.mustSend(200, "PATCH", namespace, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, "Content-Type", patch)
		api.mustSend(403, "POST", namespace+"/pods?dryRun=All", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)

		api.mustSend(201, "POST", hooksPath, hookFor("h", hook.URL, "Fail", hook))
		api.mustSend(400, "POST", namespace+"/configmaps", `{"metadata":{"name":"d"}}`)
		api.mustSend(200, "DELETE", hooksPath+"/h", "")
		api.mustSend(201, "POST", namespace+"/configmaps", `{"metadata":{"name":"d"}}`)

		api.mustSend(201, "POST", policiesPath,
			`{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[{"expression":"false"}]}}`)
		api.mustSend(201, "POST", bindingsPath, `{"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Deny"]}}`)
		api.mustSend(422, "POST", namespace+"/configmaps", `{"metadata":{"name":"e"}}`)
		api.mustSend(200, "DELETE", policiesPath+"/p", "")
		api.mustSend(201, "POST", namespace+"/configmaps", `{"metadata":{"name":"e"}}`)
		api.mustSend(200, "DELETE", bindingsPath+"/b", "")
	}
}

// TestWebhookIsCalledOnceWhileCacheLags checks that an update that starts while the cache lags does
// not call a webhook twice.
func TestWebhookIsCalledOnceWhileCacheLags(t *testing.T) {
	t.Parallel()
	api, _ := startLagging(t)
	var calls, rejects atomic.Int64
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		calls.Add(1)
		fmt.Fprintf(w,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":%t}}`,
			review.Request.UID, rejects.Load() == 0)
	}))
	t.Cleanup(hook.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	api.mustSend(201, "POST", configMaps, configMap("c"))
	api.mustSend(200, "GET", configMaps+"?limit=1", "") // waits until the cache has it
	api.mustSend(201, "POST", hooksPath,
		fmt.Sprintf(`{"metadata":{"name":"h"},"webhooks":[{"name":"a.b.c","clientConfig":{"url":%q,"caBundle":%q},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["UPDATE","DELETE"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}]}`, hook.URL, ca))
	for i, test := range []struct {
		method, body string
		rejected     bool
		code         int
	}{
		{method: "PATCH", body: `{"data":{"a":"1"}}`, code: 200},
		{method: "PATCH", body: `{"data":{"a":"2"}}`, code: 200},
		{method: "PATCH", body: `{"data":{"a":"3"}}`, rejected: true, code: 400},
		{method: "PUT", body: configMap("c", "a", "4"), code: 200},
		{method: "PUT", body: configMap("c", "a", "5"), rejected: true, code: 400},
		{method: "DELETE", rejected: true, code: 400},
		{method: "DELETE", code: 200},
	} {
		rejects.Store(0)
		if test.rejected {
			rejects.Store(1)
		}
		before := calls.Load()
		header := []string{"Content-Type", "application/json"}
		if test.method == "PATCH" {
			header[1] = mergePatch
		}
		api.mustSend(test.code, test.method, configMaps+"/c", test.body, header...)
		if n := calls.Load() - before; n != 1 {
			t.Errorf("%d: %s: got %d calls, want 1", i, test.method, n)
		}
	}
}

// TestReadsAreCurrentWithoutWatchCache checks that --watch-cache=false makes reads with
// resourceVersion=0 as recent as those without it.
func TestReadsAreCurrentWithoutWatchCache(t *testing.T) {
	t.Parallel()
	api, _ := startLagging(t, func(options *config.Options) { options.Compatibility.WatchCache = false })
	const path = "/api/v1/namespaces/default/configmaps"
	for i, query := range []string{
		"/0?resourceVersion=0", "?resourceVersion=0", "?resourceVersion=0&limit=10",
		"?resourceVersion=0&resourceVersionMatch=NotOlderThan", "?resourceVersion=0&labelSelector=!x",
	} {
		created := api.mustSend(201, "POST", path, fmt.Sprintf(`{"metadata":{"name":"%d"}}`, i))
		if response := api.mustSend(200, "GET", path+query, ""); !strings.Contains(string(response.body), `"resourceVersion":"`+created.resourceVersion()+`"`) {
			t.Errorf("%s: got %s, want resource version %s", query, response.body, created.resourceVersion())
		}
	}
}
