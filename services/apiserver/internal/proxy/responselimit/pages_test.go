package responselimit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/proxy"

	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// plainErrors responds with the text of an error.
type plainErrors struct{}

func (plainErrors) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// front starts a proxy that rewrites links, in front of a server.
func front(t *testing.T, limiter *responselimit.PageLimiter, serve http.HandlerFunc) *httptest.Server {
	t.Helper()
	behind := httptest.NewServer(serve)
	t.Cleanup(behind.Close)
	at, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	below := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: 1 << 16}
	t.Cleanup(below.CloseIdleConnections)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Own", "kept")
		to := *at
		to.Path = strings.TrimPrefix(r.URL.Path, "/here")
		r = r.WithContext(requesttest.WithUser(r.Context(), &request.User{Name: r.URL.Query().Get("user")}))
		proxy.NewUpgradeAwareHandler(&to, limiter.Transport(below), true, false, plainErrors{}).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// readResponse returns a response and at most limit bytes of its body.
func readResponse(t *testing.T, s *httptest.Server, path string, limit int64) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip") // disables transparent decompression
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// link is a page with one link, which the proxy rewrites to /here/x.
const link = `<a href="/x">x</a>`

// zipped returns text compressed with gzip.
func zipped(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return out.String()
}

// TestSmallPagesAreRewritten checks that the links of small HTML pages are rewritten, and that
// other responses pass unchanged.
func TestSmallPagesAreRewritten(t *testing.T) {
	for _, test := range []struct {
		name, contentType, text string
		compressed              bool
		want                    string // "" for what was sent
		wantType                string
	}{
		{name: "a page", contentType: "text/html; charset=utf-8", text: link, want: "/here/x", wantType: "text/html; charset=utf-8"},
		{name: "a page, compressed", contentType: "text/html", text: zipped(link), compressed: true, want: "/here/x", wantType: "text/html"},
		{name: "another type", contentType: "text/plain", text: link, wantType: "text/plain"},
		{
			name:        "a long page",
			contentType: "text/html; charset=utf-8",
			text:        strings.Repeat(link, 1<<17),
			wantType:    "text/HTML; charset=utf-8",
		},
		{
			name:        "a page that is long when it is read",
			contentType: "text/html",
			text:        zipped(strings.Repeat("a", 8<<20)),
			compressed:  true,
			wantType:    "text/HTML",
		},
		{name: "a page of links", contentType: "text/html", text: strings.Repeat("<a href=/>", 100_000), wantType: "text/HTML"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				if test.compressed {
					w.Header().Set("Content-Encoding", "gzip")
				}
				_, _ = io.WriteString(w, test.text)
			})
			resp, got := readResponse(t, s, "/here/"+strings.Repeat("p", 100), 16<<20)
			if contentType := resp.Header.Get("Content-Type"); contentType != test.wantType || !strings.EqualFold(contentType, test.contentType) {
				t.Errorf("got type %q, want %q", contentType, test.wantType)
			}
			if test.want == "" {
				if got != test.text {
					t.Errorf("got %d bytes, want the %d bytes unchanged", len(got), len(test.text))
				}
				return
			}
			if test.compressed {
				z, err := gzip.NewReader(strings.NewReader(got))
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(z)
				got = string(text)
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got page %q, want it to contain %q", got, test.want)
			}
		})
	}
}

// TestEndlessPageIsStreamed checks that a page without end is not buffered.
func TestEndlessPageIsStreamed(t *testing.T) {
	s := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(link, 1000)); err != nil {
				return
			}
		}
	})
	if resp, got := readResponse(t, s, "/here/page", 2<<20); resp.StatusCode != http.StatusOK || len(got) != 2<<20 {
		t.Errorf("got status %d, %d bytes, want 200 and all 2 MiB", resp.StatusCode, len(got))
	}
}

// TestPageSlotsAreShared checks that a principal whose pages hold its share of the slots gets
// further pages without rewriting until a slot is free, while pages of another principal are
// rewritten.
func TestPageSlotsAreShared(t *testing.T) {
	requested := make(chan bool, 100)
	server := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/slow" {
			_ = http.NewResponseController(w).Flush()
			requested <- true
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, link)
	})
	ctx, cancel := context.WithCancel(t.Context())
	finished := make(chan bool)
	const pages = 16
	for range pages {
		go func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/here/slow", nil)
			if resp, err := server.Client().Do(r); err == nil {
				_ = resp.Body.Close()
			}
			finished <- true
		}()
	}
	for range pages {
		<-requested
	}
	rewritten := func() bool {
		_, got := readResponse(t, server, "/here/page", 1<<20)
		return strings.Contains(got, "/here/x")
	}
	for rewritten() { // until the last page holds its slot
	}
	if _, got := readResponse(t, server, "/here/page?user=other", 1<<20); !strings.Contains(got, "/here/x") {
		t.Errorf("got the page of another user %q, want it rewritten", got)
	}
	cancel()
	for range pages {
		<-finished
	}
	for !rewritten() { // until the last page has released its slot
	}
}

// TestInformationalResponsesAreDropped checks that informational responses do not remove headers
// of this server, and that their number is bounded.
func TestInformationalResponsesAreDropped(t *testing.T) {
	for _, test := range []struct {
		informational int // number of informational responses
		want          int // status of the response
	}{
		{informational: 2, want: http.StatusOK},
		{informational: 1 << 30, want: http.StatusBadGateway},
	} {
		server := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			for range test.informational {
				if _, err := rw.WriteString("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
					return
				}
			}
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			_ = rw.Flush()
		})
		resp, _ := readResponse(t, server, "/here/x", 1<<10)
		if resp.StatusCode != test.want || resp.Header.Get("Own") != "kept" || resp.Header.Get("Link") != "" {
			t.Errorf("%d informational responses: got %d %v, want %d", test.informational, resp.StatusCode, resp.Header, test.want)
		}
	}
}
