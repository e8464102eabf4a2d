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
	h := i.c.withNegotiationLimit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	for _, c := range []struct {
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
		r.Header = c.fields
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || passed != (c.code == 200) ||
			!passed && (!strings.Contains(w.Body.String(), `"code":431`) || w.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%d fields: got %d, want %d: %s", len(c.fields), w.Code, c.code, w.Body)
		}
	}
}
