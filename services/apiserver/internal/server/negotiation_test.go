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
	i := newImpersonationFixture(t, allowAll)
	passed := false
	handler := i.c.withNegotiationLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	for _, test := range []struct {
		fields http.Header
		code   int
	}{
		{fields: http.Header{}, code: 200},
		{fields: http.Header{"Accept": {strings.Repeat("a", testBounds.NegotiationFields)}}, code: 200},
		{fields: http.Header{"Accept": {strings.Repeat(",a", testBounds.NegotiationFields/2), "a"}}, code: 431},
		{fields: http.Header{"Accept": {strings.Repeat("a", testBounds.NegotiationFields)}, "Content-Type": {"a"}}, code: 431},
		{
			fields: http.Header{"Content-Type": {"application/json" + strings.Repeat(";a1*0=b", testBounds.NegotiationFields)}},
			code:   431,
		},
		{fields: http.Header{"Accept-Encoding": {strings.Repeat("gzip,", testBounds.NegotiationFields)}}, code: 431},
		{fields: http.Header{"User-Agent": {strings.Repeat("a", 2*testBounds.NegotiationFields)}}, code: 200},
	} {
		passed = false
		r := httptest.NewRequest("GET", "/api", nil)
		r.Header = test.fields
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != test.code || passed != (test.code == 200) ||
			!passed && (!strings.Contains(w.Body.String(), `"code":431`) || w.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%d fields: got %d, want %d: %s", len(test.fields), w.Code, test.code, w.Body)
		}
	}
}
