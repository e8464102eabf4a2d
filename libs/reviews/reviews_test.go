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

// TestReadAcceptsReviewsAndRejectsOtherBodies checks which media types and bodies are accepted, and
// the status codes of the rejections.
func TestReadAcceptsReviewsAndRejectsOtherBodies(t *testing.T) {
	for _, test := range []struct {
		name, media string
		body        io.Reader
		code        int // of the rejection; 0 for none
	}{
		{name: "a review", media: "application/json; charset=utf-8", body: strings.NewReader("12345678"), code: 0},
		{name: "another media type", media: "text/plain", body: strings.NewReader("{}"), code: 415},
		{name: "invalid parameters", media: "application/json; charset", body: strings.NewReader("{}"), code: 415},
		{name: "no media type", media: "", body: strings.NewReader("{}"), code: 415},
		{name: "too large", media: "application/json", body: strings.NewReader("123456789"), code: 413},
		{name: "truncated body", media: "application/json", body: iotest.ErrReader(io.ErrUnexpectedEOF), code: 400},
	} {
		request := httptest.NewRequest(http.MethodPost, "/", test.body)
		request.Header.Set("Content-Type", test.media)
		body, rejection := reviews.Read(httptest.NewRecorder(), request, 8)
		switch {
		case rejection == nil && (test.code != 0 || string(body) != "12345678"):
			t.Errorf("%s: got %q, want 12345678", test.name, body)
		case rejection != nil && rejection.Code != test.code:
			t.Errorf("%s: got rejection %+v, want code %d", test.name, rejection, test.code)
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
		engine := gin.New()
		engine.GET(path, test.response)
		recorder := httptest.NewRecorder()
		engine.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		if recorder.Code != test.code || recorder.Header().Get(test.header) != test.value || recorder.Header().Get("Cache-Control") != "no-store" ||
			!strings.Contains(recorder.Body.String(), `"kind":"Status"`) {
			t.Errorf("%s: got status %d, headers %v: %s, want %d, %s %q, no-store and a Status", path, recorder.Code,
				recorder.Header(), recorder.Body, test.code, test.header, test.value)
		}
	}
}

// TestUnauthorizedClientsAreRejected checks that clients without a certificate get 401 for every
// method and path, unless any client is allowed.
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
				recorder := httptest.NewRecorder()
				engine.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
				if recorder.Code != codes[i] || !anyClient && strings.Contains(recorder.Body.String(), "secret") {
					t.Errorf("%s %s, any client allowed: %t: got status %d: %s, want %d without the secret", method,
						path, anyClient, recorder.Code, recorder.Body, codes[i])
				}
			}
		}
	}
}
