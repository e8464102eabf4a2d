package webhookclient_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
)

// TestResponseLimits checks that responses that are too long, have too many values, or are long and
// not JSON, are not decoded.
func TestResponseLimits(t *testing.T) {
	const head = `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":""}`
	many := head + `,"x":[{}` + strings.Repeat(",{}", 5000) + `]}`
	for name, c := range map[string]struct {
		answer, want string
		terms        webhookclient.CallOptions
	}{
		"at the limit": {answer: many, want: "", terms: webhookclient.CallOptions{MaxValues: 6000}},
		"too many":     {answer: many, want: "the response has too many values", terms: webhookclient.CallOptions{MaxValues: 5000}},
		"commas in a string": {answer: strings.Replace(head, `""`, `"`+strings.Repeat(",", 6000)+`"`, 1) + "}", want: "",
			terms: webhookclient.CallOptions{MaxValues: 5000}},
		"too long": {answer: many, want: "the response of the webhook is too long",
			terms: webhookclient.CallOptions{MaxValues: 6000, MaxBytes: 10_000}},
		"YAML": {answer: "kind: ConfigMap\napiVersion: v1\nx:\n" + strings.Repeat("- {}\n", 2000),
			want: "json parse error", terms: webhookclient.CallOptions{MaxValues: 5000}},
		"short YAML": {answer: "kind: ConfigMap\napiVersion: v1\n", want: "", terms: webhookclient.CallOptions{}},
		"error with too many values": {answer: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"decoded","x":[{}` + strings.Repeat(",{}", 5000) + `]}`,
			want: "unable to parse", terms: webhookclient.CallOptions{MaxValues: 5000}},
	} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if name == "error with too many values" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, c.answer)
		}))
		err := newWebhooks(t, "").Call(t.Context(), &webhookclient.Webhook{URL: s.URL, CABundle: caBundle(s)}, c.terms, &corev1.ConfigMap{}, &corev1.ConfigMap{})
		if c.want == "" && err != nil || c.want != "" && err == nil || name != "error with too many values" && err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "decoded") {
			t.Errorf("%s: the response was decoded: %v", name, err)
		}
		s.Close()
	}
}

// slowServer sends more than socket buffers hold, so that a response completes only if it is read.
type slowServer struct {
	*httptest.Server
	poured, last chan string
}

func newSlowServer(t *testing.T) *slowServer {
	t.Helper()
	p := &slowServer{poured: make(chan string, 16), last: make(chan string, 8)}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1"`)
		part := strings.Repeat(" ", 64<<10)
		for range 40 { // far more than 1 MiB and the socket buffers
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
		p.poured <- r.URL.Path
		if r.URL.Path == "/held" {
			select {
			case <-p.last:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "}")
	}))
	p.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if c, ok := c.(*tls.Conn); ok {
			if c, ok := c.NetConn().(*net.TCPConn); ok {
				_ = c.SetWriteBuffer(32 << 10)
			}
		}
		return ctx
	}
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

// asPrincipal returns a context of a request of a principal.
func asPrincipal(ctx context.Context, name string) context.Context {
	ctx, s := request.Derive(ctx)
	s.Principal = name
	return ctx
}

// TestHugeResponsesWaitForSlots checks that neither one webhook nor one principal can hold all
// slots, so that other calls proceed.
func TestHugeResponsesWaitForSlots(t *testing.T) {
	const slots = 4 // of one webhook or principal
	s := newSlowServer(t)
	w := newLargeWebhooks(t)
	ask := func(ctx context.Context, path string) error {
		return w.Call(ctx, &webhookclient.Webhook{URL: s.URL + path, CABundle: caBundle(s.Server)}, webhookclient.CallOptions{MaxValues: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{})
	}
	for name, call := range map[string]func(i int) (principal, path string){
		"one webhook":   func(i int) (string, string) { return fmt.Sprint(i), "/held" },
		"one principal": func(i int) (string, string) { return "a", fmt.Sprint("/held?", i) },
	} {
		ended := make(chan error, slots+1)
		held := func(i int) {
			principal, path := call(i)
			go func() { ended <- ask(asPrincipal(t.Context(), principal), path) }()
		}
		for i := range slots {
			held(i)
		}
		for range slots {
			<-s.poured
		}
		held(slots) // waits
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		principal, path := call(slots + 1)
		go func() { gone <- ask(asPrincipal(ctx, principal), path) }() // so does this one
		for range 3 {
			if err := ask(asPrincipal(t.Context(), "other"), "/other"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if path := <-s.poured; path != "/other" {
				t.Errorf("%s: got the response of %s read, want that of /other: the rest has no slot", name, path)
			}
		}
		cancel()
		if err := <-gone; err == nil {
			t.Errorf("%s: canceled call: got no error, want one", name)
		}
		s.last <- ""
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if path := <-s.poured; path != "/held" {
			t.Errorf("%s: got the response of %s read, want that of /held", name, path)
		}
		for range slots {
			s.last <- ""
		}
		for range slots {
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestSlowHugeResponseFails checks that a huge response must keep sending, and that shorter ones
// need no slot.
func TestSlowHugeResponseFails(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1"`)
		size := 1<<20 + 1
		if r.URL.Path == "/short" {
			size = 1000 << 10
		}
		_, _ = io.WriteString(w, strings.Repeat(" ", size))
		if r.URL.Path == "/short" {
			fmt.Fprint(w, "}")
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	answers := webhookclient.NewResponseLimiter(8)
	answers.Timeout = 20 * time.Millisecond
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w, err := webhookclient.NewWebhooks(webhookclient.WebhooksConfig{
		Scheme: scheme, Versions: []schema.GroupVersion{corev1.SchemeGroupVersion}, Timeout: time.Minute, MaxResponse: 8 << 20, Responses: answers,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var all sync.WaitGroup
	for range 20 { // more than there are slots
		all.Go(func() {
			err := w.Call(t.Context(), &webhookclient.Webhook{URL: s.URL + "/drips", CABundle: caBundle(s)}, webhookclient.CallOptions{MaxValues: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{})
			if err == nil || !strings.Contains(err.Error(), "is too slow") {
				t.Errorf("slow response: got %v", err)
			}
		})
	}
	all.Go(func() {
		if err := w.Call(t.Context(), &webhookclient.Webhook{URL: s.URL + "/short", CABundle: caBundle(s)}, webhookclient.CallOptions{MaxValues: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{}); err != nil {
			t.Errorf("shorter response: got %v", err)
		}
	})
	all.Wait()
}

// TestBodyPartsAreSent checks that requests with shared parts are complete, also after a redirect.
func TestBodyPartsAreSent(t *testing.T) {
	shared := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("2"), 1<<20), []byte("three")}
	want := "head" + string(bytes.Join(shared, nil))
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != want || r.ContentLength != int64(len(want)) {
			t.Errorf("%s: got %d bytes, content length %d, want %d: %v", r.URL.Path, len(body), r.ContentLength, len(want), err)
		}
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusPermanentRedirect)
		}
	}))
	defer s.Close()
	client, release := newClient(t, s, &rest.Config{})
	defer release()
	r, err := http.NewRequestWithContext(webhookclient.WithBodyParts(t.Context(), shared...), http.MethodPost, s.URL, strings.NewReader("head"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Request.URL.Path != "/there" {
		t.Errorf("got a response of %s, want /there", resp.Request.URL)
	}
}

// newClient returns a client of NewClient that trusts one server.
func newClient(t *testing.T, s *httptest.Server, c *rest.Config) (*http.Client, func()) {
	t.Helper()
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.CAData = append(c.CAData, caBundle(s)...)
	client, release, err := webhookclient.NewClient(c, at, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client, release
}

// TestRedirectKeepsCredentialsPrivate checks that a redirect to another host sends no credentials.
func TestRedirectKeepsCredentialsPrivate(t *testing.T) {
	received := make(chan string, 1)
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- fmt.Sprint(r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), len(r.TLS.PeerCertificates))
	}))
	defer other.Close()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		default:
			received <- r.Header.Get("Authorization")
		}
	}))
	defer s.Close()
	for want, c := range map[string]*rest.Config{
		"Bearer t":   {BearerToken: "t"},
		"Basic dTpw": {Username: "u", Password: "p", Impersonate: rest.ImpersonationConfig{UserName: "i"}},
	} {
		client, release := newClient(t, s, c)
		for path, want := range map[string]string{"/here": want, "/away": "0"} {
			resp, err := client.Post(s.URL+path, "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := <-received; got != want {
				t.Errorf("%s: got credentials %q, want %q", path, got, want)
			}
		}
		release()
	}
}
