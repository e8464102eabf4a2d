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

// TestRead checks which media types and bodies are accepted, and the status codes of the
// rejections.
func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, media string
		body        io.Reader
		code        int
	}{
		{name: "a review", media: "application/json; charset=utf-8", body: strings.NewReader("12345678"), code: 0},
		{name: "another type", media: "text/plain", body: strings.NewReader("{}"), code: 415},
		{name: "odd parameters", media: "application/json; charset", body: strings.NewReader("{}"), code: 415},
		{name: "no type", media: "", body: strings.NewReader("{}"), code: 415},
		{name: "too large", media: "application/json", body: strings.NewReader("123456789"), code: 413},
		{name: "one that breaks off", media: "application/json", body: iotest.ErrReader(io.ErrUnexpectedEOF), code: 400},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", test.body)
		r.Header.Set("Content-Type", test.media)
		body, bad := reviews.Read(httptest.NewRecorder(), r, 8)
		switch {
		case bad == nil && (test.code != 0 || string(body) != "12345678"):
			t.Errorf("%s: got %q, want 12345678", test.name, body)
		case bad != nil && bad.Code != test.code:
			t.Errorf("%s: %+v, want %d", test.name, bad, test.code)
		}
	}
}

// TestRejectionsAreNotCacheable checks the status and the headers of rejections.
func TestRejectionsAreNotCacheable(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for path, test := range map[string]struct {
		response      func(*gin.Context)
		code          int
		header, value string
	}{
		"/rejected": {
			response: func(c *gin.Context) { reviews.Reject(c, *reviews.Invalid("no %s", "good")) },
			code:     400,
			header:   "Content-Type",
			value:    "application/json; charset=utf-8",
		},
		"/later": {
			response: func(c *gin.Context) { reviews.Unavailable(c, "not now") },
			code:     503,
			header:   "Retry-After",
			value:    "1",
		},
		"/method": {
			response: func(c *gin.Context) { reviews.MethodNotAllowed(c, "reviews") },
			code:     405,
			header:   "Allow",
			value:    "POST",
		},
	} {
		e := gin.New()
		e.GET(path, test.response)
		responseRecorder := httptest.NewRecorder()
		e.ServeHTTP(responseRecorder, httptest.NewRequest(http.MethodGet, path, nil))
		if responseRecorder.Code != test.code || responseRecorder.Header().Get(test.header) != test.value || responseRecorder.Header().Get("Cache-Control") != "no-store" ||
			!strings.Contains(responseRecorder.Body.String(), `"kind":"Status"`) {
			t.Errorf("%s: got status %d, headers %v: %s, want %d, %s %q, no-store and a Status", path, responseRecorder.Code,
				responseRecorder.Header(), responseRecorder.Body, test.code, test.header, test.value)
		}
	}
}

// TestUnauthorizedClientsAreRejected checks that all methods are rejected.
func TestUnauthorizedClientsAreRejected(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for anyClient, codes := range map[bool][2]int{false: {401, 401}, true: {200, 405}} {
		clients, err := callerauth.NewGuard(&callerauth.Options{AnyClient: anyClient},
			func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, true })
		if err != nil {
			t.Fatal(err)
		}
		engine := gin.New()
		reviews.Mount(engine, clients, func(c *gin.Context) { c.String(http.StatusOK, "secret") },
			func(c *gin.Context) { reviews.MethodNotAllowed(c, "reviews") }, "/", "/review")
		for _, path := range []string{"/", "/review"} {
			for i, method := range []string{http.MethodPost, http.MethodGet} {
				w := httptest.NewRecorder()
				engine.ServeHTTP(w, httptest.NewRequest(method, path, nil))
				if w.Code != codes[i] || !anyClient && strings.Contains(w.Body.String(), "secret") {
					t.Errorf("%s %s, any client allowed: %t: got status %d: %s, want %d without the secret", method,
						path, anyClient, w.Code, w.Body, codes[i])
				}
			}
		}
	}
}
