package build

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/security/flowcontrol/width"
)

// TestLargeRequestsTakeMoreSeats uses a server with 250 ConfigMaps in one of two namespaces, and thirteen
// watches.
func TestLargeRequestsTakeMoreSeats(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := startServer(t, nil)
	for i := range 250 {
		api.mustSend(201, "POST", configMaps, configMap(fmt.Sprint("c", i)))
	}
	watch := func(path string) {
		api.openWatch(path)
	}
	for range 10 {
		watch("/api/v1/namespaces/default/secrets?watch=true")
	}
	watch("/api/v1/secrets?watch=true")
	watch("/api/v1/secrets?watch=true&fieldSelector=metadata.name%3Dother")
	watch("/api/v1/pods?watch=true")
	for _, test := range []struct {
		method, path string
		want         flowcontrol.Width
	}{
		{method: "GET", path: configMaps, want: flowcontrol.Width{Seats: 3}},
		{method: "GET", path: configMaps + "?limit=100", want: flowcontrol.Width{Seats: 1}},
		{method: "GET", path: configMaps + "?limit=100&labelSelector=a", want: flowcontrol.Width{Seats: 3}},
		{method: "GET", path: configMaps + "?limit=100&fieldSelector=metadata.name!%3Dc1", want: flowcontrol.Width{Seats: 3}},
		{method: "GET", path: configMaps + "?limit=0", want: flowcontrol.Width{Seats: 3}},
		{method: "GET", path: configMaps + "?fieldSelector=metadata.name%3Dc1", want: flowcontrol.Width{Seats: 1}},
		{method: "GET", path: configMaps + "/c1", want: flowcontrol.Width{Seats: 1}},
		{method: "GET", path: "/api/v1/namespaces/kube-public/configmaps", want: flowcontrol.Width{Seats: 1}},
		{method: "GET", path: configMaps + "?watch=1", want: flowcontrol.Width{Seats: 3}},
		{method: "GET", path: configMaps + "?watch=1&resourceVersion=0", want: flowcontrol.Width{Seats: 3}},
		{method: "GET", path: configMaps + "?watch=1&resourceVersion=5", want: flowcontrol.Width{Seats: 1}},
		{
			method: "GET",
			path:   configMaps + "?watch=1&resourceVersion=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			want:   flowcontrol.Width{Seats: 3},
		},
		{method: "DELETE", path: configMaps, want: flowcontrol.Width{Seats: 3}},
		{method: "GET", path: "/version", want: flowcontrol.Width{Seats: 1}},
		{method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", want: flowcontrol.Width{Seats: 1}},
		{method: "PUT", path: configMaps + "/c1", want: flowcontrol.Width{Seats: 1}},
		{
			method: "PUT",
			path:   "/api/v1/namespaces/default/secrets/s",
			want:   flowcontrol.Width{Seats: 1, Final: 2, AdditionalLatency: 5 * time.Millisecond},
		},
		{
			method: "PUT",
			path:   "/api/v1/namespaces/kube-system/secrets/s",
			want:   flowcontrol.Width{Seats: 1, Final: 1, AdditionalLatency: 5 * time.Millisecond},
		},
		{
			method: "PUT",
			path:   "/api/v1/namespaces/default/pods/p/status",
			want:   flowcontrol.Width{Seats: 1, Final: 1, AdditionalLatency: 5 * time.Millisecond},
		},
		{method: "POST", path: "/api/v1/namespaces/default/pods/p/exec", want: flowcontrol.Width{Seats: 1}}, // no write
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		if got := width.Estimate(requestinfo.Resolve(r, api.server.sets.kinds.Current()), 10); got != test.want {
			t.Errorf("%s %s: got %+v, want %+v", test.method, test.path, got, test.want)
		}
	}
	r := httptest.NewRequest("GET", configMaps, nil)
	if got := width.Estimate(requestinfo.Resolve(r, api.server.sets.kinds.Current()), 2); got.Seats != 2 {
		t.Errorf("got width %+v, want the maximum of the level, 2 seats", got)
	}
}

// openWatch opens a watch for the duration of the test.
func (api *testServer) openWatch(path string) {
	api.t.Helper()
	req := httptest.NewRequest("GET", api.url+path, nil).WithContext(api.t.Context())
	req.RequestURI = ""
	httpResponse, err := api.client.Do(req)
	if err != nil || httpResponse.StatusCode != 200 {
		api.t.Fatalf("watch %s: got %v, %v, want 200", path, httpResponse, err)
	}
	api.t.Cleanup(func() { httpResponse.Body.Close() })
}
