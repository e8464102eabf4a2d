package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLongNegotiationFieldsAreRejected checks that negotiation header fields beyond the limit are
// rejected with 431, and that other fields do not count.
func TestLongNegotiationFieldsAreRejected(t *testing.T) {
	fixture := newImpersonationFixture(t, allowAll)
	passed := false
	handler := fixture.config.withNegotiationLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	for name, test := range map[string]struct {
		fields http.Header
		code   int
	}{
		"no fields":           {fields: http.Header{}, code: 200},
		"Accept at the limit": {fields: http.Header{"Accept": {strings.Repeat("a", testBounds.NegotiationFields)}}, code: 200},
		"two Accept fields beyond the limit": {
			fields: http.Header{"Accept": {strings.Repeat(",a", testBounds.NegotiationFields/2), "a"}},
			code:   431,
		},
		"Accept and Content-Type beyond the limit": {
			fields: http.Header{"Accept": {strings.Repeat("a", testBounds.NegotiationFields)}, "Content-Type": {"a"}},
			code:   431,
		},
		"Content-Type with many parameters": {
			fields: http.Header{"Content-Type": {"application/json" + strings.Repeat(";a1*0=b", testBounds.NegotiationFields)}},
			code:   431,
		},
		"long Accept-Encoding": {fields: http.Header{"Accept-Encoding": {strings.Repeat("gzip,", testBounds.NegotiationFields)}}, code: 431},
		"long User-Agent":      {fields: http.Header{"User-Agent": {strings.Repeat("a", 2*testBounds.NegotiationFields)}}, code: 200},
	} {
		passed = false
		r := httptest.NewRequest("GET", "/api", nil)
		r.Header = test.fields
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		if response.Code != test.code || passed != (test.code == 200) ||
			!passed && (!strings.Contains(response.Body.String(), `"code":431`) || response.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%s: got %d, want %d: %s", name, response.Code, test.code, response.Body)
		}
	}
}
