package routing

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"
)

// TestZpagesRequireFeatureGates checks the content and the media types of /flagz and /statusz, and
// that they exist only with their feature gates.
func TestZpagesRequireFeatureGates(t *testing.T) {
	flags := Flagz("kube-apiserver", [][2]string{{"a", "1"}, {"b", "x=y"}})
	state := Statusz("kube-apiserver", time.Now().Add(-3661*time.Second), Versions{"1.33.13", "1.32"})
	on := &Mux{Flagz: flags, Statusz: state}
	off := &Mux{}
	for path, want := range map[string]string{
		"/flagz":   `^\nkube-apiserver flags\nWarning: .*\n\na=1\nb=x=y\n$`,
		"/statusz": `^\nkube-apiserver statusz\nWarning: .*\n\nStarted: .*\nUp: 1 hr 01 min 0\d sec\nGo version: go.*\nBinary version: 1\.33\.13\nEmulation version: 1\.32\n$`,
	} {
		for accept, code := range map[string]int{
			"": 406, "application/json": 406, "text/plain;charset=latin1": 406,
			"*/*": 200, "text/plain; charset=UTF-8": 200, "application/json, text/*": 200,
		} {
			response := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Accept", accept)
			on.ServeHTTP(response, r)
			if response.Code != code {
				t.Errorf("%s with Accept %q: got %d, want %d", path, accept, response.Code, code)
			}
			if code == http.StatusOK && !regexp.MustCompile(want).MatchString(response.Body.String()) {
				t.Errorf("%s: got body %q, want a match of %q", path, response.Body, want)
			}
		}
		response := httptest.NewRecorder()
		off.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
		if response.Code != http.StatusNotFound {
			t.Errorf("%s without its feature gate: got %d, want 404", path, response.Code)
		}
	}
}
