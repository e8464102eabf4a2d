package imagepolicy_test

import (
	"context"
	"encoding/json"
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
	asked    []string
	onReview func() // called for each review
	url      string // URL
	length   int    // Content-Length of a truncated response; 0 for a complete one
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onReview != nil {
		b.onReview()
	}
	b.asked = append(b.asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	if b.length > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(b.length))
	}
	w.WriteHeader(b.code)
	_, _ = io.WriteString(w, b.response)
}

func (b *backend) respond(code int, response string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.code, b.response, b.asked = code, response, nil
}

func (b *backend) reviews() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// clock is a fake clock. Waiting advances it.
type clock struct {
	now    time.Time
	pauses []time.Duration
	paused func()
}

func (c *clock) clock() imagepolicy.Clock {
	return imagepolicy.Clock{Now: func() time.Time { return c.now }, Pause: func(ctx context.Context, d time.Duration) error {
		c.pauses = append(c.pauses, d)
		if c.paused != nil {
			c.paused()
		}
		return ctx.Err()
	}}
}

func start(t *testing.T, config string) (*imagepolicy.Plugin, *backend, *clock) {
	t.Helper()
	b := &backend{}
	s := httptest.NewTLSServer(b)
	t.Cleanup(s.Close)
	b.url = s.URL + "/image"
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   s.URL + "/image",
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	conf, err := imagepolicy.Load(fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q, %s}", file, config))
	if err != nil {
		t.Fatal(err)
	}
	cl := &clock{now: time.Unix(1000, 0)}
	plugin, err := imagepolicy.New(conf, cl.clock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plugin.Close)
	return plugin, b, cl
}

func request(pod *corev1.Pod, op admission.Operation, sub string) *admission.Request {
	return &admission.Request{
		Operation: op, Subresource: sub, Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}},
		Namespace: "off", Name: "a", Object: pod,
	}
}

func pod(annotations map[string]string, images ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: annotations}}
	for _, i := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: i})
	}
	return p
}

// TestReviewContent checks the images in the review for each kind of request.
func TestReviewContent(t *testing.T) {
	whole := pod(map[string]string{"x.image-policy.k8s.io/ticket": "break-glass", "other": "y"}, "i:1", "j:2")
	whole.Spec.InitContainers = []corev1.Container{{Image: "k"}}
	whole.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "dbg"}},
	}
	const head = `POST /image?timeout=30s {"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{"creationTimestamp":null},"spec":{"containers":[`
	for name, c := range map[string]struct {
		op   admission.Operation
		sub  string
		want string
	}{
		"created":              {op: admission.Create, sub: "", want: `{"image":"i:1"},{"image":"j:2"},{"image":"k"}`},
		"updated":              {op: admission.Update, sub: "", want: `{"image":"i:1"},{"image":"j:2"},{"image":"k"}`},
		"ephemeral containers": {op: admission.Update, sub: "ephemeralcontainers", want: `{"image":"dbg"}`},
		"status":               {op: admission.Update, sub: "status", want: ""},
		"deleted":              {op: admission.Delete, sub: "", want: ""},
	} {
		plugin, b, _ := start(t, "allowTTL: -1")
		b.respond(200, `{"status":{"allowed":true}}`)
		if err := plugin.Validate(t.Context(), request(whole, c.op, c.sub)); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
		var want []string
		if c.want != "" {
			want = []string{
				head + c.want + `],"annotations":{"x.image-policy.k8s.io/ticket":"break-glass"},"namespace":"off"},"status":{"allowed":false}}`,
			}
		}
		if got := b.reviews(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got reviews %s, want %s", name, got, want)
		}
	}
}

// TestWebhookResponseDecides checks the decisions and audit annotations for the responses of the
// webhook.
func TestWebhookResponseDecides(t *testing.T) {
	const open = "imagepolicywebhook.image-policy.k8s.io/failed-open"
	review := `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":`
	for name, c := range map[string]struct {
		config   string
		code     int
		response string
		want     string // after "pods "a" is forbidden: "
		audit    map[string]string
		asked    int
		open     bool
		length   int
	}{
		"allowed": {code: 200, response: review + `{"allowed":true}}`, asked: 1},
		"allowed and annotated": {
			code: 201, response: review + `{"allowed":true,"auditAnnotations":{"k":"v"}}}`, asked: 1,
			audit: map[string]string{"imagepolicywebhook.image-policy.k8s.io/k": "v"},
		},
		"rejected": {
			code: 200, response: review + `{"allowed":false,"reason":"image is bad"}}`,
			want: "image policy webhook backend denied one or more images: image is bad", asked: 1,
		},
		"of another case": {
			code: 200, response: review + `{"allowed":false,"Allowed":true}}`,
			want: "one or more images rejected by webhook backend", asked: 1,
		},
		"rejected, no reason": {
			code: 200, response: review + `{"allowed":false}}`,
			want: "one or more images rejected by webhook backend", asked: 1,
		},
		"rejected means it": {
			config: "defaultAllow: true", code: 200, response: review + `{"allowed":false}}`,
			want: "one or more images rejected by webhook backend", asked: 1,
		},
		"broken": {
			code: 500, response: "broken",
			want: `an error on the server ("broken") has prevented the request from succeeding`, asked: 5,
		},
		"broken, asked once": {
			config: "retryBackoff: -1", code: 500, response: "broken",
			want: `an error on the server ("broken") has prevented the request from succeeding`, asked: 1,
		},
		"broken, let through": {
			config: "defaultAllow: true", code: 500, response: "broken", asked: 5,
			audit: map[string]string{open: "true"}, open: true,
		},
		"unknown there": {code: 404, response: "no", want: `the server could not find the requested resource`, asked: 1},
		"elsewhere":     {code: 307, want: `the server responded with the status code 307 but did not return more information`, asked: 1},
		"nonsense": {
			config: "defaultAllow: true", code: 200, response: "{", asked: 1,
			audit: map[string]string{open: "true"}, open: true,
		},
		"too many questions": {
			code: 429, response: "busy",
			want: "the server has received too many requests and has asked us to try again later", asked: 5,
		},
		"too late": {
			code: 504, response: "late",
			want:  "the server was unable to return a response in the time allotted, but may still be processing the request",
			asked: 5,
		},
		"of one kind alone": {
			code: 200, response: `{"kind":"Status","status":{"allowed":true}}`,
			want: "the response of URL is  Status, want imagepolicy.k8s.io/v1alpha1, Kind=ImageReview", asked: 1,
		},
		"of a version alone": {
			code: 200, response: `{"apiVersion":"v1","status":{"allowed":true}}`,
			want: "the response of URL is v1 , want imagepolicy.k8s.io/v1alpha1, Kind=ImageReview", asked: 1,
		},
		"too long": {
			code: 200, response: `{"status":{"allowed":true}}` + strings.Repeat(" ", 1<<20),
			want: "the response of URL exceeds 1048576 bytes", asked: 1,
		},
		"not whole": {code: 200, response: `{"status":{"allowed":true}}`, length: 100, want: "unexpected EOF", asked: 1},
		"of another kind": {
			config: "defaultAllow: true", code: 200, response: `{"kind":"Status","apiVersion":"v1"}`, asked: 1,
			audit: map[string]string{open: "true"}, open: true,
		},
	} {
		if c.config == "" {
			c.config = "retryBackoff: 100"
		}
		plugin, b, clock := start(t, c.config)
		b.respond(c.code, c.response)
		b.length = c.length
		r := request(pod(nil, "i"), admission.Create, "")
		err := plugin.Validate(t.Context(), r)
		want := "<nil>"
		if c.want != "" {
			want = `pods "a" is forbidden: ` + c.want
		}
		if got := strings.ReplaceAll(fmt.Sprint(err), b.url, "URL"); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		if got := len(b.reviews()); got != c.asked {
			t.Errorf("%s: got %d reviews, want %d", name, got, c.asked)
		}
		if want := max(c.asked, 1) - 1; len(clock.pauses) != want {
			t.Errorf("%s: got pauses %v, want %d", name, clock.pauses, want)
		}
		if got, want := fmt.Sprint(r.Annotations()), fmt.Sprint(c.audit); got != want {
			t.Errorf("%s: got audit annotations %s, want %s", name, got, want)
		}
		if got := r.Object.(*corev1.Pod).Annotations["alpha.image-policy.k8s.io/failed-open"]; (got == "true") != c.open {
			t.Errorf("%s: got annotation %q, want %v", name, got, c.open)
		}
	}
}

func TestResponsesAreCached(t *testing.T) {
	plugin, b, clock := start(t, "allowTTL: 10, denyTTL: 20, retryBackoff: -1")
	requireReview := func(image string, allowed bool, asked int) {
		t.Helper()
		err := plugin.Validate(t.Context(), request(pod(nil, image), admission.Create, ""))
		if (err == nil) != allowed || len(b.reviews()) != asked {
			t.Errorf("%s: got %v, %d reviews; want %v, length %v", image, err, len(b.reviews()), allowed, asked)
		}
	}
	b.respond(200, `{"status":{"allowed":true}}`)
	requireReview("i", true, 1)
	requireReview("i", true, 1)
	requireReview("j", true, 2)
	b.respond(200, `{"status":{"allowed":false}}`)
	requireReview("k", false, 1)
	clock.now = clock.now.Add(9 * time.Second)
	requireReview("i", true, 1)
	clock.now = clock.now.Add(2 * time.Second)
	requireReview("i", false, 2)
	requireReview("k", false, 2)
	clock.now = clock.now.Add(10 * time.Second)
	b.respond(500, "broken")
	requireReview("k", false, 1)
	requireReview("k", false, 2) // errors are not cached
}

// The cache of responses is limited by their number, and a pod may name a
// megabyte of images.
func TestReviewedTextsAreNotKept(t *testing.T) {
	p, b, _ := start(t, "allowTTL: 10, denyTTL: 20, retryBackoff: -1")
	b.respond(200, `{"status":{"allowed":true}}`)
	ask := func(image string) {
		t.Helper()
		if err := p.Validate(t.Context(), request(pod(nil, image), admission.Create, "")); err != nil {
			t.Fatal(err)
		}
		b.respond(200, `{"status":{"allowed":true}}`) // drops the recorded review
	}
	ask("i")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 100 {
		ask(strings.Repeat("x", 1<<20) + strconv.Itoa(i))
	}
	if after := heap(); after > before+16<<20 {
		t.Errorf("responses to 100 reviews of 1 MiB: got %d MiB of memory, want at most 16", (after-before)>>20)
	}
	runtime.KeepAlive(p)
}

func TestCanceledRequestsAreRejected(t *testing.T) {
	plugin, b, _ := start(t, "defaultAllow: true")
	b.respond(200, `{"status":{"allowed":true}}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plugin.Validate(ctx, request(pod(nil, "i"), admission.Create, "")); err == nil {
		t.Error("error for a canceled request = nil, want one")
	}
}

// TestRequestIsSuspendedDuringReview checks that the request does not hold its seats while it waits
// for the webhook.
func TestRequestIsSuspendedDuringReview(t *testing.T) {
	plugin, b, _ := start(t, "defaultAllow: false")
	b.respond(200, `{"status":{"allowed":true}}`)
	var away, asked atomic.Int64
	b.onReview = func() { asked.Store(away.Load()) }
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{})
	requests.FromContext(ctx).Work = &requesttest.Work{OnSuspend: func() func() { away.Add(1); return func() { away.Add(-1) } }}
	if err := plugin.Validate(ctx, request(pod(nil, "i"), admission.Create, "")); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != 1 || away.Load() != 0 {
		t.Errorf("suspended %d times during the review, %d times after it; want 1, 0", asked.Load(), away.Load())
	}
}

// TestInvalidConfigurationIsRejected checks that invalid files are rejected with a message that
// names the cause.
func TestInvalidConfigurationIsRejected(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"none": {file: "", want: "no config specified"},
		"bad times": {file: "imagePolicy: {kubeConfigFile: x, allowTTL: 99999, denyTTL: -5, retryBackoff: 700000}",
			want: "valid value is between 1ns and 5m0s, got 11m40s"},
		"overflow": {file: "imagePolicy: {kubeConfigFile: x, allowTTL: 18446744075}",
			want: "valid value is between 1s and 30m0s, got 1.290448384s"},
		"too long":       {file: "imagePolicy: {kubeConfigFile: x, allowTTL: 1801}", want: "valid value is between 1s and 30m0s, got 30m1s"},
		"less than none": {file: "imagePolicy: {kubeConfigFile: x, denyTTL: -5}", want: "valid value is between 1s and 30m0s, got -5s"},
		"no kubeconfig":  {file: "imagePolicy: {}", want: "imagePolicy.kubeConfigFile: Required value"},
		"unknown field": {file: "imagePolicy: {kubeConfigFile: x, allowTtl: 1}",
			want: `strict decoding error: unknown field "imagePolicy.allowTtl"`},
		"not a map": {file: "[]", want: "json: cannot unmarshal array into Go value of type imagepolicy.file"},
	} {
		var data []byte
		if c.file != "" {
			data = []byte(c.file)
		}
		if _, err := imagepolicy.Load(data); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v; want an error, %v", name, err, c.want)
		}
	}
	got, err := imagepolicy.Load([]byte("imagePolicy: {kubeConfigFile: x}"))
	data, _ := json.Marshal(got)
	if want := `{"KubeconfigFile":"x","AllowTTL":300000000000,"DenyTTL":30000000000,"RetryBackoff":500000000,"DefaultAllow":false}`; err != nil ||
		string(data) != want {
		t.Errorf("got %s, %v; want no error, %v", data, err, want)
	}
}

// TestReviewedRequests checks that pods and their ephemeral containers are reviewed. Outside
// reports updates in advance.
func TestReviewedRequests(t *testing.T) {
	plugin, b, _ := start(t, "allowTTL: -1")
	for _, c := range []struct {
		resource, sub string
		op            admission.Operation
		asks          bool
	}{
		{resource: "pods", sub: "", op: admission.Update, asks: true},
		{resource: "pods", sub: "ephemeralcontainers", op: admission.Update, asks: true},
		{resource: "pods", sub: "status", op: admission.Update, asks: false},
		{resource: "pods", sub: "", op: admission.Create, asks: false},
		{resource: "others", sub: "", op: admission.Update, asks: false},
	} {
		r := request(pod(nil, "i"), c.op, c.sub)
		r.Resource = &registry.Kind{Names: registry.Names{Resource: c.resource}}
		if got := plugin.CallsExternal(t.Context(), r); got != c.asks {
			t.Errorf("%s of %s/%s: %t, want %v", c.op, c.resource, c.sub, got, c.asks)
		}
	}
	b.respond(200, `{"status":{"allowed":false}}`)
	other := request(pod(nil, "i"), admission.Create, "")
	other.Resource = &registry.Kind{Names: registry.Names{Resource: "others"}}
	if err := plugin.Validate(t.Context(), other); err != nil || len(b.reviews()) != 0 {
		t.Errorf("another resource: got %v, %d reviews; want no error, length 0", err, len(b.reviews()))
	}
	if _, err := imagepolicy.New(&imagepolicy.Configuration{KubeconfigFile: filepath.Join(t.TempDir(), "none")}, imagepolicy.RealClock()); err == nil {
		t.Error("error for a missing kubeconfig = nil, want one")
	}
}

// TestDeadlineEndsRetries checks that when the request's time ends, the last error of the webhook
// is returned.
func TestDeadlineEndsRetries(t *testing.T) {
	plugin, b, clock := start(t, "retryBackoff: 100")
	ctx, cancel := context.WithCancel(t.Context())
	clock.paused = cancel
	b.respond(500, "broken")
	err := plugin.Validate(ctx, request(pod(nil, "i"), admission.Create, ""))
	if err == nil || !strings.Contains(err.Error(), `("broken")`) || len(b.reviews()) != 1 {
		t.Errorf("got %v, %d reviews; want an error with (\"broken\") after one", err, len(b.reviews()))
	}
}
