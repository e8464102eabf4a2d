package server

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestVerbosityChangesAtRunTime(t *testing.T) {
	for _, c := range []struct {
		method, body string
		code         int
		text         string
		want         int // the verbosity afterwards
	}{
		{"PUT", "4", 200, "successfully set klog.logging.verbosity to 4", 4},
		{"PUT", "1\n", 400, `strconv.ParseUint: parsing "1\n": invalid syntax`, 0},
		{"PUT", "-1", 400, `strconv.ParseUint: parsing "-1": invalid syntax`, 0},
		{"PUT", "high", 400, `strconv.ParseUint: parsing "high": invalid syntax`, 0},
		{"PUT", strings.Repeat("1", 100), 400, "error reading request body: ", 0},
		{"GET", "", 406, "unsupported http method", 0},
	} {
		got := 0
		m := &Mux{Profiling: true, Verbosity: func(n int) { got = n }}
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(c.method, "/debug/flags/v", strings.NewReader(c.body)))
		if w.Code != c.code || !strings.HasPrefix(w.Body.String(), c.text) || got != c.want {
			t.Errorf("%s %q: got %d %q, verbosity %d", c.method, c.body, w.Code, w.Body.String(), got)
		}
	}
	w := httptest.NewRecorder()
	(&Mux{Verbosity: func(int) {}}).ServeHTTP(w, httptest.NewRequest("PUT", "/debug/flags/v", strings.NewReader("4")))
	if w.Code != 404 {
		t.Errorf("without profiling: got %d", w.Code)
	}
}
