package routing

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPutSetsVerbosity checks that PUT of /debug/flags/v sets the log level, with the
// responses of Kubernetes.
func TestPutSetsVerbosity(t *testing.T) {
	for _, test := range []struct {
		method, body string
		code         int
		text         string
		want         int // the verbosity afterwards; 0 for no change
	}{
		{method: "PUT", body: "4", code: 200, text: "successfully set klog.logging.verbosity to 4", want: 4},
		{method: "PUT", body: "1\n", code: 400, text: `strconv.ParseUint: parsing "1\n": invalid syntax`},
		{method: "PUT", body: "-1", code: 400, text: `strconv.ParseUint: parsing "-1": invalid syntax`},
		{method: "PUT", body: "high", code: 400, text: `strconv.ParseUint: parsing "high": invalid syntax`},
		{method: "PUT", body: strings.Repeat("1", 100), code: 400, text: "error reading request body: "},
		{method: "GET", code: 406, text: "unsupported http method"},
	} {
		got := 0
		mux := &Mux{Profiling: true, Verbosity: func(n int) { got = n }}
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, httptest.NewRequest(test.method, "/debug/flags/v", strings.NewReader(test.body)))
		if response.Code != test.code || !strings.HasPrefix(response.Body.String(), test.text) || got != test.want {
			t.Errorf("%s %q: got %d %q, verbosity %d, want %d %q, verbosity %d",
				test.method, test.body, response.Code, response.Body.String(), got, test.code, test.text, test.want)
		}
	}
	response := httptest.NewRecorder()
	(&Mux{Verbosity: func(int) {}}).ServeHTTP(response, httptest.NewRequest("PUT", "/debug/flags/v", strings.NewReader("4")))
	if response.Code != 404 {
		t.Errorf("PUT without profiling: got %d, want 404", response.Code)
	}
}
