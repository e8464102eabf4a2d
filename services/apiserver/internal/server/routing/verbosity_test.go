package routing

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestVerbosityChangesAtRunTime checks that PUT of /debug/flags/v sets the log level, with the
// responses of Kubernetes.
func TestVerbosityChangesAtRunTime(t *testing.T) {
	for _, test := range []struct {
		method, body string
		code         int
		text         string
		want         int // the verbosity afterwards
	}{
		{method: "PUT", body: "4", code: 200, text: "successfully set klog.logging.verbosity to 4", want: 4},
		{method: "PUT", body: "1\n", code: 400, text: `strconv.ParseUint: parsing "1\n": invalid syntax`},
		{method: "PUT", body: "-1", code: 400, text: `strconv.ParseUint: parsing "-1": invalid syntax`},
		{method: "PUT", body: "high", code: 400, text: `strconv.ParseUint: parsing "high": invalid syntax`},
		{method: "PUT", body: strings.Repeat("1", 100), code: 400, text: "error reading request body: "},
		{method: "GET", code: 406, text: "unsupported http method"},
	} {
		got := 0
		m := &Mux{Profiling: true, Verbosity: func(n int) { got = n }}
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(test.method, "/debug/flags/v", strings.NewReader(test.body)))
		if w.Code != test.code || !strings.HasPrefix(w.Body.String(), test.text) || got != test.want {
			t.Errorf("%s %q: got %d %q, verbosity %d, want %d %q, verbosity %d",
				test.method, test.body, w.Code, w.Body.String(), got, test.code, test.text, test.want)
		}
	}
	w := httptest.NewRecorder()
	(&Mux{Verbosity: func(int) {}}).ServeHTTP(w, httptest.NewRequest("PUT", "/debug/flags/v", strings.NewReader("4")))
	if w.Code != 404 {
		t.Errorf("PUT without profiling: got %d, want 404", w.Code)
	}
}
