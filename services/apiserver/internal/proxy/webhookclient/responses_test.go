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

// TestTooLargeResponsesAreNotDecoded checks that responses that are too long, have too many values, or are long and
// not JSON, are not decoded.
func TestTooLargeResponsesAreNotDecoded(t *testing.T) {
	const head = `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":""}`
	many := head + `,"x":[{}` + strings.Repeat(",{}", 5000) + `]}`
	for name, test := range map[string]struct {
		response string
		options  webhookclient.CallOptions
		want     string // part of the error; "" for none
	}{
		"values within the limit": {response: many, want: "", options: webhookclient.CallOptions{MaxValues: 6000}},
		"too many values": {
			response: many,
			want:     "the response has too many values",
			options:  webhookclient.CallOptions{MaxValues: 5000},
		},
		"commas in a string are not values": {
			response: strings.Replace(head, `""`, `"`+strings.Repeat(",", 6000)+`"`, 1) +
				"}",
			want:    "",
			options: webhookclient.CallOptions{MaxValues: 5000},
		},
		"too many bytes": {
			response: many,
			want:     "the response of the webhook is too long",
			options:  webhookclient.CallOptions{MaxValues: 6000, MaxBytes: 10_000},
		},
		"long YAML": {
			response: "kind: ConfigMap\napiVersion: v1\nx:\n" + strings.Repeat("- {}\n", 2000),
			want:     "json parse error",
			options:  webhookclient.CallOptions{MaxValues: 5000},
		},
		"short YAML": {response: "kind: ConfigMap\napiVersion: v1\n", want: "", options: webhookclient.CallOptions{}},
		"error with too many values": {
			response: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"decoded","x":[{}` +
				strings.Repeat(",{}", 5000) + `]}`,
			want:    "unable to parse",
			options: webhookclient.CallOptions{MaxValues: 5000},
		},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if name == "error with too many values" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, test.response)
		}))
		err := newWebhooks(t, "").Call(t.Context(),
			&webhookclient.Webhook{URL: server.URL, CABundle: caBundle(server)}, test.options, &corev1.ConfigMap{}, &corev1.ConfigMap{})
		failed := err != nil
		if failed != (test.want != "") {
			t.Errorf("%s: got error %v, want %q", name, err, test.want)
		}
		// The text of an error response is that of client-go.
		if failed && name != "error with too many values" && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want %q", name, err, test.want)
		}
		if failed && strings.Contains(err.Error(), "decoded") {
			t.Errorf("%s: got error %v, want none with the message of the response, which must not be decoded", name, err)
		}
		server.Close()
	}
}

// slowServer sends huge responses, of more than socket buffers hold, so that a response completes
// only if it is read.
type slowServer struct {
	*httptest.Server
	sent    chan string   // receives the path of each response whose huge part was read
	release chan struct{} // each value completes one response to /held
}

func newSlowServer(t *testing.T) *slowServer {
	t.Helper()
	created := &slowServer{sent: make(chan string, 16), release: make(chan struct{}, 8)}
	created.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1"`)
		part := strings.Repeat(" ", 64<<10)
		for range 40 { // far more than 1 MiB and the socket buffers
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
		created.sent <- r.URL.Path
		if r.URL.Path == "/held" {
			select {
			case <-created.release:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "}")
	}))
	created.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if c, ok := c.(*tls.Conn); ok {
			if c, ok := c.NetConn().(*net.TCPConn); ok {
				_ = c.SetWriteBuffer(32 << 10)
			}
		}
		return ctx
	}
	created.StartTLS()
	t.Cleanup(created.Close)
	return created
}

// asPrincipal returns a context of a request of a principal.
func asPrincipal(ctx context.Context, name string) context.Context {
	ctx, s := request.Derive(ctx)
	s.Principal = name
	return ctx
}

// TestHugeResponsesWaitForSlots checks that calls of one webhook or one principal wait once they
// hold their share of the slots, and that other calls proceed meanwhile.
func TestHugeResponsesWaitForSlots(t *testing.T) {
	const slots = 4 // the share of one webhook or principal
	slowServer := newSlowServer(t)
	webhooks := newLargeWebhooks(t)
	callWebhook := func(ctx context.Context, path string) error {
		return webhooks.Call(ctx, &webhookclient.Webhook{
			URL:      slowServer.URL + path,
			CABundle: caBundle(slowServer.Server),
		}, webhookclient.CallOptions{MaxValues: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{})
	}
	for name, caller := range map[string]func(i int) (principal, path string){
		"one webhook":   func(i int) (string, string) { return fmt.Sprint(i), "/held" },
		"one principal": func(i int) (string, string) { return "a", fmt.Sprint("/held?", i) },
	} {
		finished := make(chan error, slots+1)
		startHeld := func(i int) {
			principal, path := caller(i)
			go func() { finished <- callWebhook(asPrincipal(t.Context(), principal), path) }()
		}
		for i := range slots {
			startHeld(i)
		}
		for range slots {
			<-slowServer.sent
		}
		startHeld(slots) // waits for a slot
		ctx, cancel := context.WithCancel(t.Context())
		canceled := make(chan error, 1)
		principal, path := caller(slots + 1)
		go func() { canceled <- callWebhook(asPrincipal(ctx, principal), path) }() // also waits for a slot
		for range 3 {
			if err := callWebhook(asPrincipal(t.Context(), "other"), "/other"); err != nil {
				t.Errorf("%s: other call: got error %v, want none", name, err)
			}
			if path := <-slowServer.sent; path != "/other" {
				t.Errorf("%s: the response to %s was read, want /other, because other calls have no slot", name, path)
			}
		}
		cancel()
		if err := <-canceled; err == nil {
			t.Errorf("%s: canceled call: got no error, want one", name)
		}
		slowServer.release <- struct{}{}
		if err := <-finished; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if path := <-slowServer.sent; path != "/held" {
			t.Errorf("%s: the response to %s was read, want /held", name, path)
		}
		for range slots {
			slowServer.release <- struct{}{}
		}
		for range slots {
			if err := <-finished; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestSlowHugeResponseFails checks that a huge response that stops sending fails, so that it cannot
// hold a slot, and that a shorter response needs no slot.
func TestSlowHugeResponseFails(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	defer server.Close()
	limiter := webhookclient.NewResponseLimiter(8)
	limiter.Timeout = 20 * time.Millisecond
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	webhooks, err := webhookclient.NewWebhooks(webhookclient.WebhooksConfig{
		Scheme:      scheme,
		Versions:    []schema.GroupVersion{corev1.SchemeGroupVersion},
		Timeout:     time.Minute,
		MaxResponse: 8 << 20,
		Responses:   limiter,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer webhooks.Close()
	var calls sync.WaitGroup
	for range 20 { // more than there are slots
		calls.Go(func() {
			err := webhooks.Call(t.Context(), &webhookclient.Webhook{
				URL:      server.URL + "/slow",
				CABundle: caBundle(server),
			}, webhookclient.CallOptions{MaxValues: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{})
			if err == nil || !strings.Contains(err.Error(), "is too slow") {
				t.Errorf("slow response: got error %v, want one that contains \"is too slow\"", err)
			}
		})
	}
	calls.Go(func() {
		if err := webhooks.Call(t.Context(), &webhookclient.Webhook{
			URL:      server.URL + "/short",
			CABundle: caBundle(server),
		}, webhookclient.CallOptions{MaxValues: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{}); err != nil {
			t.Errorf("shorter response: got error %v, want none", err)
		}
	})
	calls.Wait()
}

// TestBodyPartsAreSent checks that the server receives the body and the shared parts, also after a
// redirect.
func TestBodyPartsAreSent(t *testing.T) {
	shared := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("2"), 1<<20), []byte("three")}
	want := "head" + string(bytes.Join(shared, nil))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || string(body) != want || req.ContentLength != int64(len(want)) {
			t.Errorf("%s: got %d bytes, content length %d, want %d: %v", req.URL.Path, len(body), req.ContentLength, len(want), err)
		}
		if req.URL.Path == "/" {
			http.Redirect(w, req, "/redirected", http.StatusPermanentRedirect)
		}
	}))
	defer server.Close()
	client, release := newClient(t, server, &rest.Config{})
	defer release()
	req, err := http.NewRequestWithContext(webhookclient.WithBodyParts(t.Context(), shared...),
		http.MethodPost, server.URL, strings.NewReader("head"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Request.URL.Path != "/redirected" {
		t.Errorf("got a response of %s, want /redirected", resp.Request.URL)
	}
}

// newClient returns a client of NewClient for the webhook s.
func newClient(t *testing.T, server *httptest.Server, config *rest.Config) (*http.Client, func()) {
	t.Helper()
	serverURL, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.CAData = append(config.CAData, caBundle(server)...)
	client, release, err := webhookclient.NewClient(config, serverURL, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client, release
}

// TestRedirectKeepsCredentialsPrivate checks that a redirect within the host of the webhook keeps
// the credentials, and that a redirect to another host sends none.
func TestRedirectKeepsCredentialsPrivate(t *testing.T) {
	received := make(chan string, 1)
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- fmt.Sprint(r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), len(r.TLS.PeerCertificates))
	}))
	defer other.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		default:
			received <- r.Header.Get("Authorization")
		}
	}))
	defer server.Close()
	for want, c := range map[string]*rest.Config{
		"Bearer t":   {BearerToken: "t"},
		"Basic dTpw": {Username: "u", Password: "p", Impersonate: rest.ImpersonationConfig{UserName: "i"}},
	} {
		client, release := newClient(t, server, c)
		for path, want := range map[string]string{"/here": want, "/away": "0"} {
			resp, err := client.Post(server.URL+path, "application/json", strings.NewReader("{}"))
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
