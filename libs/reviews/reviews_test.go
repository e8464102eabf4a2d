package reviews_test

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gin-gonic/gin"

	"binnacle/libs/callerauth"
	"binnacle/libs/reviews"
)

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, media string
		body        io.Reader
		code        int
	}{
		{"a review", "application/json; charset=utf-8", strings.NewReader("12345678"), 0},
		{"another type", "text/plain", strings.NewReader("{}"), 415},
		{"odd parameters", "application/json; charset", strings.NewReader("{}"), 415},
		{"no type", "", strings.NewReader("{}"), 415},
		{"too large", "application/json", strings.NewReader("123456789"), 413},
		{"one that breaks off", "application/json", iotest.ErrReader(io.ErrUnexpectedEOF), 400},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", c.body)
		r.Header.Set("Content-Type", c.media)
		body, bad := reviews.Read(httptest.NewRecorder(), r, 8)
		switch {
		case bad == nil && (c.code != 0 || string(body) != "12345678"):
			t.Errorf("%s: read %q", c.name, body)
		case bad != nil && bad.Code != c.code:
			t.Errorf("%s: %+v, want %d", c.name, bad, c.code)
		}
	}
}

func TestRefusalsAreNotCacheable(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for path, c := range map[string]struct {
		answer        func(*gin.Context)
		code          int
		header, value string
	}{
		"/refused": {func(c *gin.Context) { reviews.Refuse(c, *reviews.Invalid("no %s", "good")) }, 400, "Content-Type", "application/json; charset=utf-8"},
		"/later":   {func(c *gin.Context) { reviews.Unavailable(c, "not now") }, 503, "Retry-After", "1"},
		"/method":  {func(c *gin.Context) { reviews.NotAllowed(c, "reviews") }, 405, "Allow", "POST"},
	} {
		e := gin.New()
		e.GET(path, c.answer)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != c.code || w.Header().Get(c.header) != c.value || w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
}

// TestUnauthorizedClientsAreRejected checks that all methods are rejected.
func TestUnauthorizedClientsAreRejected(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for anyClient, codes := range map[bool][2]int{false: {401, 401}, true: {200, 405}} {
		clients, err := callerauth.NewGuard(&callerauth.Options{AnyClient: anyClient}, func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, true })
		if err != nil {
			t.Fatal(err)
		}
		e := gin.New()
		reviews.Mount(e, clients, func(c *gin.Context) { c.String(http.StatusOK, "secret") }, func(c *gin.Context) { reviews.NotAllowed(c, "reviews") }, "/", "/review")
		for _, path := range []string{"/", "/review"} {
			for i, method := range []string{http.MethodPost, http.MethodGet} {
				w := httptest.NewRecorder()
				e.ServeHTTP(w, httptest.NewRequest(method, path, nil))
				if w.Code != codes[i] || !anyClient && strings.Contains(w.Body.String(), "secret") {
					t.Errorf("%s %s, any client allowed = %t: %d %s", method, path, anyClient, w.Code, w.Body)
				}
			}
		}
	}
}
