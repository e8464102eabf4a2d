package responselimit_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/proxy/responselimit"
)

// TestOtherMediaTypesAreStreamed checks that only HTML pages are buffered.
func TestOtherMediaTypesAreStreamed(t *testing.T) {
	done := make(chan bool)
	s := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	if _, got := readResponse(t, s, "/here/x", 5); got != "first" {
		t.Errorf("got %q, want first", got)
	}
	close(done)
}

// TestLongPagesReleaseTheirSlot checks that a page that is too long to be rewritten holds no slot.
func TestLongPagesReleaseTheirSlot(t *testing.T) {
	long := make(chan bool)
	server := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path != "/long" {
			_, _ = io.WriteString(w, link)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("a", 2<<20))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-long:
		case <-r.Context().Done():
		}
	})
	defer close(long)
	for range 20 {
		if resp, _ := readResponse(t, server, "/here/long", 1); resp.Header.Get("Content-Type") != "text/HTML" {
			t.Fatalf("got Content-Type %q, want text/HTML", resp.Header.Get("Content-Type"))
		}
	}
	if _, got := readResponse(t, server, "/here/page", 1<<20); !strings.Contains(got, "/here/x") {
		t.Errorf("short page: got %q, want links rewritten to /here/x", got)
	}
}

// TestUnusualCompressionIsNotRewritten checks that compressed pages that start with empty blocks,
// expand beyond the limit, or are not compressed at all are not rewritten.
func TestUnusualCompressionIsNotRewritten(t *testing.T) {
	var late bytes.Buffer
	z := gzip.NewWriter(&late)
	for late.Len() < 2<<20 {
		_ = z.Flush() // an empty block
	}
	_, _ = io.WriteString(z, strings.Repeat("a", 8<<20))
	_ = z.Close()
	for name, test := range map[string]struct {
		text, contentType string
		code              int
	}{
		"empty blocks first": {text: late.String(), contentType: "text/HTML", code: http.StatusOK},
		"too long":           {text: zipped(strings.Repeat("a", 2<<20)), contentType: "text/HTML", code: http.StatusOK},
		"not compressed":     {text: "plain", contentType: "text/plain; charset=utf-8", code: http.StatusBadGateway},
	} {
		s := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, test.text)
		})
		resp, _ := readResponse(t, s, "/here/x", 16<<20)
		if contentType := resp.Header.Get("Content-Type"); resp.StatusCode != test.code || contentType != test.contentType {
			t.Errorf("%s: got status %d, type %q, want %d, %q", name, resp.StatusCode, contentType, test.code, test.contentType)
		}
	}
}

// TestOwnHeadersAreRemoved checks that headers and trailers that only this server may set do not
// reach the client.
func TestOwnHeadersAreRemoved(t *testing.T) {
	s := front(t, responselimit.NewPageLimiter(16), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Audit-Id", "forged")
		w.Header().Set("Trailer", "Other, Audit-Id")
		_, _ = io.WriteString(w, "text")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("Other", "kept")
		w.Header().Set("Audit-Id", "forged")
		w.Header().Set(http.TrailerPrefix+"X-Kubernetes-Pf-Flowschema-Uid", "forged")
	})
	resp, _ := readResponse(t, s, "/here/x", 1<<10)
	if all := fmt.Sprint(resp.Header, resp.Trailer); strings.Contains(all, "forged") || resp.Trailer.Get("Other") != "kept" {
		t.Errorf("got headers %v, trailers %v, want no forged one and the trailer Other", resp.Header, resp.Trailer)
	}
}
