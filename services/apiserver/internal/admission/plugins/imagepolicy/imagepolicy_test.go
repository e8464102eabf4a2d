package imagepolicy_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/imagepolicy"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	requests "binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// backend is a webhook with a fixed response that records the reviews it gets.
type backend struct {
	mu       sync.Mutex
	code     int
	response string
	received []string // method, URI and body of each review
	onReview func()   // called for each review
	url      string
	length   int // Content-Length of a truncated response in bytes; 0 for a complete one
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onReview != nil {
		b.onReview()
	}
	b.received = append(b.received, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	if b.length > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(b.length))
	}
	w.WriteHeader(b.code)
	_, _ = io.WriteString(w, b.response)
}

// respond sets the response, and forgets the recorded reviews.
func (b *backend) respond(code int, response string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.code, b.response, b.received = code, response, nil
}

// reviews returns the recorded reviews.
func (b *backend) reviews() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.received
}

// clock is a fake clock. It records pauses and returns from them at once.
type clock struct {
	now     time.Time
	pauses  []time.Duration
	onPause func() // called for each pause, if set
}

func (c *clock) clock() imagepolicy.Clock {
	return imagepolicy.Clock{Now: func() time.Time { return c.now }, Pause: func(ctx context.Context, d time.Duration) error {
		c.pauses = append(c.pauses, d)
		if c.onPause != nil {
			c.onPause()
		}
		return ctx.Err()
	}}
}

// start returns a plugin, the webhook that it calls, and its clock. config holds fields of the
// plugin's configuration in YAML.
func start(t *testing.T, config string) (*imagepolicy.Plugin, *backend, *clock) {
	t.Helper()
	out := &backend{}
	server := httptest.NewTLSServer(out)
	t.Cleanup(server.Close)
	out.url = server.URL + "/image"
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   server.URL + "/image",
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	configuration, err := imagepolicy.Load(fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q, %s}", file, config))
	if err != nil {
		t.Fatal(err)
	}
	fakeClock := &clock{now: time.Unix(1000, 0)}
	plugin, err := imagepolicy.New(configuration, fakeClock.clock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plugin.Close)
	return plugin, out, fakeClock
}

// request returns a request for the pod off/a.
func request(pod *corev1.Pod, op admission.Operation, subresource string) *admission.Request {
	return &admission.Request{
		Operation: op, Subresource: subresource, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}},
		Namespace: "off", Name: "a", Object: pod,
	}
}

// pod returns a pod with a container for each image.
func pod(annotations map[string]string, images ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: annotations}}
	for _, i := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: i})
	}
	return p
}

// TestReviewContainsImagesOfRequest checks the images in the review for each kind of request.
func TestReviewContainsImagesOfRequest(t *testing.T) {
	allTypes := pod(map[string]string{"x.image-policy.k8s.io/ticket": "break-glass", "other": "y"}, "i:1", "j:2")
	allTypes.Spec.InitContainers = []corev1.Container{{Image: "k"}}
	allTypes.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "dbg"}},
	}
	// head begins each recorded review, up to the containers.
	const head = `POST /image?timeout=30s {"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1",` +
		`"metadata":{"creationTimestamp":null},"spec":{"containers":[`
	for name, test := range map[string]struct {
		op          admission.Operation
		subresource string
		want        string // reviewed containers; empty without a review
	}{
		"create":               {op: admission.Create, subresource: "", want: `{"image":"i:1"},{"image":"j:2"},{"image":"k"}`},
		"update":               {op: admission.Update, subresource: "", want: `{"image":"i:1"},{"image":"j:2"},{"image":"k"}`},
		"ephemeral containers": {op: admission.Update, subresource: "ephemeralcontainers", want: `{"image":"dbg"}`},
		"status":               {op: admission.Update, subresource: "status", want: ""},
		"delete":               {op: admission.Delete, subresource: "", want: ""},
	} {
		plugin, backend, _ := start(t, "allowTTL: -1")
		backend.respond(200, `{"status":{"allowed":true}}`)
		if err := plugin.Validate(t.Context(), request(allTypes, test.op, test.subresource)); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
		var want []string
		if test.want != "" {
			want = []string{
				head + test.want + `],"annotations":{"x.image-policy.k8s.io/ticket":"break-glass"},"namespace":"off"},"status":{"allowed":false}}`,
			}
		}
		if got := backend.reviews(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got reviews %s, want %s", name, got, want)
		}
	}
}

// TestWebhookResponseDecides checks the decisions and audit annotations for the responses of the
// webhook.
func TestWebhookResponseDecides(t *testing.T) {
	const failedOpen = "imagepolicywebhook.image-policy.k8s.io/failed-open"
	review := `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":`
	for name, test := range map[string]struct {
		config   string // fields of the plugin's configuration
		code     int    // HTTP status code
		response string
		length   int // Content-Length of a truncated response

		want           string // error after "pods "a" is forbidden: "; empty when admitted
		wantAudit      map[string]string
		wantReviews    int  // number of calls of the webhook
		wantFailedOpen bool // the pod was admitted without a review
	}{
		"allowed": {code: 200, response: review + `{"allowed":true}}`, wantReviews: 1},
		"allowed and annotated": {
			code: 201, response: review + `{"allowed":true,"auditAnnotations":{"k":"v"}}}`, wantReviews: 1,
			wantAudit: map[string]string{"imagepolicywebhook.image-policy.k8s.io/k": "v"},
		},
		"rejected": {
			code: 200, response: review + `{"allowed":false,"reason":"image is bad"}}`,
			want: "image policy webhook backend denied one or more images: image is bad", wantReviews: 1,
		},
		"field in another case is ignored": {
			code: 200, response: review + `{"allowed":false,"Allowed":true}}`,
			want: "one or more images rejected by webhook backend", wantReviews: 1,
		},
		"rejected without a reason": {
			code: 200, response: review + `{"allowed":false}}`,
			want: "one or more images rejected by webhook backend", wantReviews: 1,
		},
		"rejected despite defaultAllow": {
			config: "defaultAllow: true", code: 200, response: review + `{"allowed":false}}`,
			want: "one or more images rejected by webhook backend", wantReviews: 1,
		},
		"server error is retried": {
			code: 500, response: "broken",
			want: `an error on the server ("broken") has prevented the request from succeeding`, wantReviews: 5,
		},
		"server error without retries": {
			config: "retryBackoff: -1", code: 500, response: "broken",
			want: `an error on the server ("broken") has prevented the request from succeeding`, wantReviews: 1,
		},
		"server error with defaultAllow": {
			config: "defaultAllow: true", code: 500, response: "broken", wantReviews: 5,
			wantAudit: map[string]string{failedOpen: "true"}, wantFailedOpen: true,
		},
		"not found": {code: 404, response: "no", want: `the server could not find the requested resource`, wantReviews: 1},
		"redirect":  {code: 307, want: `the server responded with the status code 307 but did not return more information`, wantReviews: 1},
		"malformed response with defaultAllow": {
			config: "defaultAllow: true", code: 200, response: "{", wantReviews: 1,
			wantAudit: map[string]string{failedOpen: "true"}, wantFailedOpen: true,
		},
		"too many requests is retried": {
			code: 429, response: "busy",
			want: "the server has received too many requests and has asked us to try again later", wantReviews: 5,
		},
		"gateway timeout is retried": {
			code: 504, response: "late",
			want:        "the server was unable to return a response in the time allotted, but may still be processing the request",
			wantReviews: 5,
		},
		"kind without apiVersion": {
			code: 200, response: `{"kind":"Status","status":{"allowed":true}}`,
			want: "the response of URL is  Status, want imagepolicy.k8s.io/v1alpha1, Kind=ImageReview", wantReviews: 1,
		},
		"apiVersion without kind": {
			code: 200, response: `{"apiVersion":"v1","status":{"allowed":true}}`,
			want: "the response of URL is v1 , want imagepolicy.k8s.io/v1alpha1, Kind=ImageReview", wantReviews: 1,
		},
		"response too long": {
			code: 200, response: `{"status":{"allowed":true}}` + strings.Repeat(" ", 1<<20),
			want: "the response of URL exceeds 1048576 bytes", wantReviews: 1,
		},
		"truncated response": {code: 200, response: `{"status":{"allowed":true}}`, length: 100, want: "unexpected EOF", wantReviews: 1},
		"response of another kind with defaultAllow": {
			config: "defaultAllow: true", code: 200, response: `{"kind":"Status","apiVersion":"v1"}`, wantReviews: 1,
			wantAudit: map[string]string{failedOpen: "true"}, wantFailedOpen: true,
		},
	} {
		if test.config == "" {
			test.config = "retryBackoff: 100"
		}
		plugin, backend, clock := start(t, test.config)
		backend.respond(test.code, test.response)
		backend.length = test.length
		req := request(pod(nil, "i"), admission.Create, "")
		err := plugin.Validate(t.Context(), req)
		want := "<nil>"
		if test.want != "" {
			want = `pods "a" is forbidden: ` + test.want
		}
		if got := strings.ReplaceAll(fmt.Sprint(err), backend.url, "URL"); got != want {
			t.Errorf("%s: got error %s, want %s", name, got, want)
		}
		if got := len(backend.reviews()); got != test.wantReviews {
			t.Errorf("%s: got %d reviews, want %d", name, got, test.wantReviews)
		}
		if want := max(test.wantReviews, 1) - 1; len(clock.pauses) != want {
			t.Errorf("%s: got pauses %v, want %d of them", name, clock.pauses, want)
		}
		if got, want := fmt.Sprint(req.Annotations()), fmt.Sprint(test.wantAudit); got != want {
			t.Errorf("%s: got audit annotations %s, want %s", name, got, want)
		}
		if got := req.Object.(*corev1.Pod).Annotations["alpha.image-policy.k8s.io/failed-open"]; (got == "true") != test.wantFailedOpen {
			t.Errorf("%s: got annotation failed-open %q, want it set: %t", name, got, test.wantFailedOpen)
		}
	}
}

// TestResponsesAreCached checks that responses are cached for allowTTL and denyTTL, and errors are
// not.
func TestResponsesAreCached(t *testing.T) {
	plugin, backend, clock := start(t, "allowTTL: 10, denyTTL: 20, retryBackoff: -1")
	// check checks the decision on an image, and the number of reviews since the last change of the
	// response.
	check := func(image string, wantAllowed bool, wantReviews int) {
		t.Helper()
		err := plugin.Validate(t.Context(), request(pod(nil, image), admission.Create, ""))
		if (err == nil) != wantAllowed || len(backend.reviews()) != wantReviews {
			t.Errorf("image %s: got error %v after %d reviews, want allowed: %t after %d reviews",
				image, err, len(backend.reviews()), wantAllowed, wantReviews)
		}
	}
	const allowed, denied = true, false
	backend.respond(200, `{"status":{"allowed":true}}`)
	check("i", allowed, 1)
	check("i", allowed, 1)
	check("j", allowed, 2)
	backend.respond(200, `{"status":{"allowed":false}}`)
	check("k", denied, 1)
	clock.now = clock.now.Add(9 * time.Second)
	check("i", allowed, 1)
	clock.now = clock.now.Add(2 * time.Second)
	check("i", denied, 2)
	check("k", denied, 2)
	clock.now = clock.now.Add(10 * time.Second)
	backend.respond(500, "broken")
	check("k", denied, 1)
	check("k", denied, 2) // errors are not cached
}

// TestCacheHoldsNoReviewedTexts checks that the cache does not hold the images. It is limited by the
// number of responses, and a pod may name a megabyte of images.
func TestCacheHoldsNoReviewedTexts(t *testing.T) {
	plugin, backend, _ := start(t, "allowTTL: 10, denyTTL: 20, retryBackoff: -1")
	backend.respond(200, `{"status":{"allowed":true}}`)
	review := func(image string) {
		t.Helper()
		if err := plugin.Validate(t.Context(), request(pod(nil, image), admission.Create, "")); err != nil {
			t.Fatal(err)
		}
		backend.respond(200, `{"status":{"allowed":true}}`) // drops the recorded review
	}
	review("i")
	liveHeapBytes := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := liveHeapBytes()
	for i := range 100 {
		review(strings.Repeat("x", 1<<20) + strconv.Itoa(i))
	}
	if after := liveHeapBytes(); after > before+16<<20 {
		t.Errorf("responses to 100 reviews of 1 MiB: got %d MiB of memory, want at most 16", (after-before)>>20)
	}
	runtime.KeepAlive(plugin)
}

// TestCanceledRequestsAreRejected checks that defaultAllow does not admit a request that was canceled
// during its review.
func TestCanceledRequestsAreRejected(t *testing.T) {
	plugin, b, _ := start(t, "defaultAllow: true")
	b.respond(200, `{"status":{"allowed":true}}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plugin.Validate(ctx, request(pod(nil, "i"), admission.Create, "")); err == nil {
		t.Error("canceled request: got no error, want one")
	}
}

// TestRequestIsSuspendedDuringReview checks that the request does not hold its seats while it waits
// for the webhook.
func TestRequestIsSuspendedDuringReview(t *testing.T) {
	plugin, b, _ := start(t, "defaultAllow: false")
	b.respond(200, `{"status":{"allowed":true}}`)
	var suspended, suspendedDuringReview atomic.Int64
	b.onReview = func() { suspendedDuringReview.Store(suspended.Load()) }
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{})
	requests.FromContext(ctx).Work = &requesttest.Work{OnSuspend: func() func() {
		suspended.Add(1)
		return func() { suspended.Add(-1) }
	}}
	if err := plugin.Validate(ctx, request(pod(nil, "i"), admission.Create, "")); err != nil {
		t.Fatal(err)
	}
	if suspendedDuringReview.Load() != 1 || suspended.Load() != 0 {
		t.Errorf("suspended %d times during the review, %d times after it; want 1, 0",
			suspendedDuringReview.Load(), suspended.Load())
	}
}

// TestInvalidConfigurationIsRejected checks that invalid files are rejected with a message that
// names the cause.
func TestInvalidConfigurationIsRejected(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"missing file": {file: "", want: "no config specified"},
		"backoff too long": {file: "imagePolicy: {kubeConfigFile: x, allowTTL: 99999, denyTTL: -5, retryBackoff: 700000}",
			want: "valid value is between 1ns and 5m0s, got 11m40s"},
		"overflow": {file: "imagePolicy: {kubeConfigFile: x, allowTTL: 18446744075}",
			want: "valid value is between 1s and 30m0s, got 1.290448384s"},
		"TTL too long":  {file: "imagePolicy: {kubeConfigFile: x, allowTTL: 1801}", want: "valid value is between 1s and 30m0s, got 30m1s"},
		"negative TTL":  {file: "imagePolicy: {kubeConfigFile: x, denyTTL: -5}", want: "valid value is between 1s and 30m0s, got -5s"},
		"no kubeconfig": {file: "imagePolicy: {}", want: "imagePolicy.kubeConfigFile: Required value"},
		"unknown field": {file: "imagePolicy: {kubeConfigFile: x, allowTtl: 1}",
			want: `strict decoding error: unknown field "imagePolicy.allowTtl"`},
		"not a map": {file: "[]", want: "json: cannot unmarshal array into Go value of type imagepolicy.file"},
	} {
		var data []byte
		if test.file != "" {
			data = []byte(test.file)
		}
		if _, err := imagepolicy.Load(data); err == nil || err.Error() != test.want {
			t.Errorf("%s: got error %v, want %s", name, err, test.want)
		}
	}
}

// TestLoadSetsDefaults checks the defaults of a configuration with only a kubeconfig.
func TestLoadSetsDefaults(t *testing.T) {
	got, err := imagepolicy.Load([]byte("imagePolicy: {kubeConfigFile: x}"))
	want := imagepolicy.Configuration{
		KubeconfigFile: "x",
		AllowTTL:       5 * time.Minute,
		DenyTTL:        30 * time.Second,
		RetryBackoff:   500 * time.Millisecond,
	}
	if err != nil || *got != want {
		t.Errorf("got %+v and error %v, want %+v and no error", got, err, want)
	}
}

// TestOnlyPodImagesAreReviewed checks that CallsExternal reports updates of pods and their ephemeral
// containers, and that other resources are not reviewed.
func TestOnlyPodImagesAreReviewed(t *testing.T) {
	plugin, backend, _ := start(t, "allowTTL: -1")
	for _, test := range []struct {
		resource, subresource string
		op                    admission.Operation
		want                  bool
	}{
		{resource: "pods", subresource: "", op: admission.Update, want: true},
		{resource: "pods", subresource: "ephemeralcontainers", op: admission.Update, want: true},
		{resource: "pods", subresource: "status", op: admission.Update, want: false},
		{resource: "pods", subresource: "", op: admission.Create, want: false},
		{resource: "others", subresource: "", op: admission.Update, want: false},
	} {
		r := request(pod(nil, "i"), test.op, test.subresource)
		r.Resource = &registry.Kind{Names: registry.Names{Resource: test.resource}}
		if got := plugin.CallsExternal(t.Context(), r); got != test.want {
			t.Errorf("CallsExternal(%s of %s/%s) = %t, want %t", test.op, test.resource, test.subresource, got, test.want)
		}
	}
	backend.respond(200, `{"status":{"allowed":false}}`)
	other := request(pod(nil, "i"), admission.Create, "")
	other.Resource = &registry.Kind{Names: registry.Names{Resource: "others"}}
	if err := plugin.Validate(t.Context(), other); err != nil || len(backend.reviews()) != 0 {
		t.Errorf("another resource: got error %v and %d reviews, want none", err, len(backend.reviews()))
	}
}

// TestMissingKubeconfigIsRejected checks that New fails without the kubeconfig.
func TestMissingKubeconfigIsRejected(t *testing.T) {
	config := &imagepolicy.Configuration{KubeconfigFile: filepath.Join(t.TempDir(), "none")}
	if _, err := imagepolicy.New(config, imagepolicy.RealClock()); err == nil {
		t.Error("New with a missing kubeconfig: got no error, want one")
	}
}

// TestDeadlineEndsRetries checks that when the request's time ends, the last error of the webhook
// is returned.
func TestDeadlineEndsRetries(t *testing.T) {
	plugin, backend, clock := start(t, "retryBackoff: 100")
	ctx, cancel := context.WithCancel(t.Context())
	clock.onPause = cancel
	backend.respond(500, "broken")
	err := plugin.Validate(ctx, request(pod(nil, "i"), admission.Create, ""))
	if err == nil || !strings.Contains(err.Error(), `("broken")`) || len(backend.reviews()) != 1 {
		t.Errorf("got error %v after %d reviews, want one with (\"broken\") after one review", err, len(backend.reviews()))
	}
}
