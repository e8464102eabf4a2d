package discovery_test

import (
	"encoding/json"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/discovery"
)

// TestUnacceptableMediaTypesGetReferenceErrors checks that unacceptable media types get the errors of
// kube-apiserver. Its router serves /api and the built-in group versions, but not the other documents.
func TestUnacceptableMediaTypesGetReferenceErrors(t *testing.T) {
	d, handler := serve(t)
	d.Replace([]discovery.GroupVersion{{Group: "g.example.com", Version: "v1"}})
	const (
		routed = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"
		others = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
	)
	for _, test := range []struct{ path, accept, want string }{
		{path: "/api", accept: "application/foo", want: routed},
		{path: "/api/v1", accept: "text/html", want: routed},
		{path: "/apis/apps/v1", accept: "application/foo", want: routed},
		{path: "/apis/apps/v1", accept: "application/json;v=v1", want: others},
		{path: "/apis/apps", accept: "application/foo", want: others},
		{path: "/apis", accept: "application/foo", want: others},
		{path: "/apis/g.example.com/v1", accept: "application/foo", want: others},
	} {
		responseRecorder := get(handler, test.path, "Accept", test.accept)
		var status metav1.Status
		if err := json.Unmarshal(responseRecorder.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if responseRecorder.Code != http.StatusNotAcceptable || status.Message != test.want {
			t.Errorf("%s, Accept %s: got %d %q, want 406 %q", test.path, test.accept, responseRecorder.Code, status.Message, test.want)
		}
	}
}
