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

// TestManyFieldsAreRefused: a head is short in bytes, and not in fields.
func TestManyFieldsAreRefused(t *testing.T) {
	for many, want := range map[int]int{responselimit.MaxFields - 10: http.StatusOK, responselimit.MaxFields + 1: http.StatusBadGateway} {
		s := front(t, responselimit.NewRoom(), func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + strings.Repeat("A:\r\n", many) + "\r\nok")
			_ = rw.Flush()
		})
		if resp, _ := ask(t, s, "/here/x", 1<<10); resp.StatusCode != want {
			t.Errorf("%d fields: %d", many, resp.StatusCode)
		}
	}
}

// TestWhatIsNoPageIsNotHeld: it is shown as it is written.
func TestWhatIsNoPageIsNotHeld(t *testing.T) {
	over := make(chan bool)
	s := front(t, responselimit.NewRoom(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	if _, got := ask(t, s, "/here/x", 5); got != "first" {
		t.Errorf("got %q", got)
	}
	close(over)
}

// TestLongPagesLeaveTheirRoom at once: they need none.
func TestLongPagesLeaveTheirRoom(t *testing.T) {
	long := make(chan bool)
	s := front(t, responselimit.NewRoom(), func(w http.ResponseWriter, r *http.Request) {
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
		if resp, _ := ask(t, s, "/here/long", 1); resp.Header.Get("Content-Type") != "text/HTML" {
			t.Fatalf("the type is %q", resp.Header.Get("Content-Type"))
		}
	}
	if _, got := ask(t, s, "/here/page", 1<<20); !strings.Contains(got, "/here/x") {
		t.Errorf("no room is left for a short one: %q", got)
	}
}

// TestOddCompression: neither what begins with a lot of nothing nor what is no compression at all
// makes a page of what is long.
func TestOddCompression(t *testing.T) {
	var late bytes.Buffer
	z := gzip.NewWriter(&late)
	for late.Len() < 2<<20 {
		_ = z.Flush() // a block of nothing
	}
	_, _ = io.WriteString(z, strings.Repeat("a", 8<<20))
	_ = z.Close()
	for name, c := range map[string]struct {
		text, kind string
		code       int
	}{
		"long in the end": {late.String(), "text/HTML", http.StatusOK},
		"longer than one": {zipped(strings.Repeat("a", 2<<20)), "text/HTML", http.StatusOK},
		"none":            {"plain", "text/plain; charset=utf-8", http.StatusBadGateway},
	} {
		s := front(t, responselimit.NewRoom(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, c.text)
		})
		resp, _ := ask(t, s, "/here/x", 16<<20)
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != c.code || kind != c.kind {
			t.Errorf("%s: %d, the type is %q", name, resp.StatusCode, kind)
		}
	}
}

// TestNobodyElseSaysWhatThisServerDoes, neither before the body nor after it.
func TestNobodyElseSaysWhatThisServerDoes(t *testing.T) {
	s := front(t, responselimit.NewRoom(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Audit-Id", "forged")
		w.Header().Set("Trailer", "Other, Audit-Id")
		_, _ = io.WriteString(w, "text")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("Other", "kept")
		w.Header().Set("Audit-Id", "forged")
		w.Header().Set(http.TrailerPrefix+"X-Kubernetes-Pf-Flowschema-Uid", "forged")
	})
	resp, _ := ask(t, s, "/here/x", 1<<10)
	if all := fmt.Sprint(resp.Header, resp.Trailer); strings.Contains(all, "forged") || resp.Trailer.Get("Other") != "kept" {
		t.Errorf("%v, then %v", resp.Header, resp.Trailer)
	}
}
