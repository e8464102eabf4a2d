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
)

// TestAnswersWithinTerms: what is too long, has too many values, or is long and no JSON, is not decoded.
func TestAnswersWithinTerms(t *testing.T) {
	const head = `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":""}`
	many := head + `,"x":[{}` + strings.Repeat(",{}", 5000) + `]}`
	for name, c := range map[string]struct {
		answer, want string
		terms        webhookclient.Terms
	}{
		"as many as may be":       {many, "", webhookclient.Terms{Values: 6000}},
		"too many":                {many, "the answer has too many values", webhookclient.Terms{Values: 5000}},
		"commas of a text":        {strings.Replace(head, `""`, `"`+strings.Repeat(",", 6000)+`"`, 1) + "}", "", webhookclient.Terms{Values: 5000}},
		"too long":                {many, "the answer of the webhook is too long", webhookclient.Terms{Values: 6000, Most: 10_000}},
		"another form":            {"kind: ConfigMap\napiVersion: v1\nx:\n" + strings.Repeat("- {}\n", 2000), "json parse error", webhookclient.Terms{Values: 5000}},
		"another form, but short": {"kind: ConfigMap\napiVersion: v1\n", "", webhookclient.Terms{}},
		"an error of many":        {`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"decoded","x":[{}` + strings.Repeat(",{}", 5000) + `]}`, "unable to parse", webhookclient.Terms{Values: 5000}},
	} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if name == "an error of many" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, c.answer)
		}))
		err := hooks(t, "").Ask(t.Context(), &webhookclient.Webhook{URL: s.URL, CABundle: ca(s)}, c.terms, &corev1.ConfigMap{}, &corev1.ConfigMap{})
		if c.want == "" && err != nil || c.want != "" && err == nil || name != "an error of many" && err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "decoded") {
			t.Errorf("%s: it was decoded: %v", name, err)
		}
		s.Close()
	}
}

// pouring answers with so much that it only comes to its end when somebody reads.
type pouring struct {
	*httptest.Server
	poured, last chan string
}

func pour(t *testing.T) *pouring {
	t.Helper()
	p := &pouring{poured: make(chan string, 16), last: make(chan string, 8)}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1"`)
		part := strings.Repeat(" ", 64<<10)
		for range 40 { // far more than a megabyte, and what lies in between
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

// TestHugeAnswersWaitForEachOther: one webhook has as many places as are free, so that others go on.
func TestHugeAnswersWaitForEachOther(t *testing.T) {
	const places = 4 // of one webhook
	s := pour(t)
	w := large(t)
	ask := func(ctx context.Context, path string) error {
		return w.Ask(ctx, &webhookclient.Webhook{URL: s.URL + path, CABundle: ca(s.Server)}, webhookclient.Terms{Values: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{})
	}
	ended := make(chan error, places+1)
	held := func() { go func() { ended <- ask(t.Context(), "/held") }() }
	for range places {
		held()
	}
	for range places {
		<-s.poured
	}
	held() // waits
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- ask(ctx, "/held") }() // so does this one
	for range 3 {
		if err := ask(t.Context(), "/other"); err != nil {
			t.Error(err)
		}
		if path := <-s.poured; path != "/other" {
			t.Errorf("an answer of %s is read, which has all its places", path)
		}
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("a question that is given up has an answer")
	}
	s.last <- ""
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if path := <-s.poured; path != "/held" {
		t.Errorf("%s is read", path)
	}
	close(s.last)
	for range places {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestAnswersThatDrip: who has begun a huge answer has to go on with it, and shorter ones need no place.
func TestAnswersThatDrip(t *testing.T) {
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
	answers := webhookclient.NewAnswers()
	answers.Patience = 20 * time.Millisecond
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w, err := webhookclient.NewWebhooks(webhookclient.WebhooksConfig{
		Scheme: scheme, Versions: []schema.GroupVersion{corev1.SchemeGroupVersion}, Timeout: time.Minute, MaxAnswer: 8 << 20, Answers: answers,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var all sync.WaitGroup
	for range 20 { // more than there are places
		all.Go(func() {
			err := w.Ask(t.Context(), &webhookclient.Webhook{URL: s.URL + "/drips", CABundle: ca(s)}, webhookclient.Terms{Values: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{})
			if err == nil || !strings.Contains(err.Error(), "comes too slowly") {
				t.Errorf("what drips: %v", err)
			}
		})
	}
	all.Go(func() {
		if err := w.Ask(t.Context(), &webhookclient.Webhook{URL: s.URL + "/short", CABundle: ca(s)}, webhookclient.Terms{Values: 100}, &corev1.ConfigMap{}, &corev1.ConfigMap{}); err != nil {
			t.Errorf("what is shorter: %v", err)
		}
	})
	all.Wait()
}

// TestSharedParts: a question is sent whole from parts that others have too, and again where it is redirected to.
func TestSharedParts(t *testing.T) {
	shared := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("2"), 1<<20), []byte("three")}
	want := "head" + string(bytes.Join(shared, nil))
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != want || r.ContentLength != int64(len(want)) {
			t.Errorf("%s: %d bytes came of %d announced, want %d: %v", r.URL.Path, len(body), r.ContentLength, len(want), err)
		}
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusPermanentRedirect)
		}
	}))
	defer s.Close()
	client, release := directly(t, s, &rest.Config{})
	defer release()
	r, err := http.NewRequestWithContext(webhookclient.WithParts(t.Context(), shared...), http.MethodPost, s.URL, strings.NewReader("head"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Request.URL.Path != "/there" {
		t.Errorf("it ends at %s", resp.Request.URL)
	}
}

// directly is a client of Direct for one server, which trusts it.
func directly(t *testing.T, s *httptest.Server, c *rest.Config) (*http.Client, func()) {
	t.Helper()
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.CAData = append(c.CAData, ca(s)...)
	client, release, err := webhookclient.Direct(c, at, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client, release
}

// TestOthersAreNotToldWhoAsks: a redirect to another host does not take credentials there.
func TestOthersAreNotToldWhoAsks(t *testing.T) {
	told := make(chan string, 1)
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		told <- fmt.Sprint(r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), len(r.TLS.PeerCertificates))
	}))
	defer other.Close()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		default:
			told <- r.Header.Get("Authorization")
		}
	}))
	defer s.Close()
	for want, c := range map[string]*rest.Config{
		"Bearer t":   {BearerToken: "t"},
		"Basic dTpw": {Username: "u", Password: "p", Impersonate: rest.ImpersonationConfig{UserName: "i"}},
	} {
		client, release := directly(t, s, c)
		for path, want := range map[string]string{"/here": want, "/away": "0"} {
			resp, err := client.Post(s.URL+path, "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := <-told; got != want {
				t.Errorf("%s: it is told %q, want %q", path, got, want)
			}
		}
		release()
	}
}
