package build

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestContinueTokenIsCheckedBeforeResourceVersion expects the order of kube-apiserver.
func TestContinueTokenIsCheckedBeforeResourceVersion(t *testing.T) {
	for _, cached := range []bool{true, false} {
		t.Run(fmt.Sprintf("watch cache %t", cached), func(t *testing.T) {
			api := startServer(t, func(options *config.Options) { options.Compatibility.WatchCache = cached })
			for i := range 3 {
				api.mustSend(201, "POST", configMaps, configMap(fmt.Sprintf("c%d", i)))
			}
			token := fmt.Sprint(api.mustSend(200, "GET", configMaps+"?limit=1", "").field("metadata", "continue"))
			for _, test := range []struct{ continueToken, version, message string }{
				{continueToken: "invalid", version: "invalid", message: "continue key is not valid"},
				{continueToken: "invalid", version: "1", message: "continue key is not valid"},
				{continueToken: "invalid", version: "0", message: "continue key is not valid"},
				{
					continueToken: token,
					version:       "invalid",
					message:       "specifying resource version is not allowed when using continue",
				},
				{
					continueToken: token,
					version:       "1",
					message:       "specifying resource version is not allowed when using continue",
				},
				{version: "invalid", message: "resourceVersion: Invalid value"},
			} {
				query := url.Values{"limit": {"1"}, "continue": {test.continueToken}, "resourceVersion": {test.version}}
				response := api.mustSend(400, "GET", configMaps+"?"+query.Encode(), "")
				if got := fmt.Sprint(response.field("message")); !strings.Contains(got, test.message) {
					t.Errorf("continue %.10q, resourceVersion %q: got message %s, want it to contain %q",
						test.continueToken, test.version, got, test.message)
				}
			}
			all := len(api.mustSend(200, "GET", configMaps, "").field("items").([]any))
			want := all
			if !cached {
				want = 1
			}
			if n := len(api.mustSend(200, "GET", configMaps+"?limit=1&resourceVersion=0", "").field("items").([]any)); n != want {
				t.Errorf("limit=1 with resourceVersion=0: got %d of %d objects, want %d", n, all, want)
			}
		})
	}
}

// TestNotAcceptableWatchNamesMediaTypes checks that the error for an Accept header that a watch
// cannot serve names the possible media types.
func TestNotAcceptableWatchNamesMediaTypes(t *testing.T) {
	api := startServer(t, nil)
	const (
		objects = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
		streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
	)
	api.mustSend(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"metadata":{"name":"foos.a.example.com"},"spec":{"group":"a.example.com","scope":"Cluster","names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	const custom = "/apis/a.example.com/v1/foos"
	api.waitUntil("custom resources are served", func() bool { return api.get(custom).code == 200 })
	for _, path := range []string{"/api/v1/pods", custom} {
		for accept, want := range map[string]string{
			"application/yaml;as=Table;g=meta.k8s.io;v=v1":                    streams,
			"application/yaml;as=PartialObjectMetadata;g=meta.k8s.io;v=v1":    streams,
			"application/json;as=Bogus;g=meta.k8s.io;v=v1":                    objects,
			"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1": objects,
			"application/vnd.kubernetes.protobuf;as=Bogus;g=meta.k8s.io;v=v1": objects,
		} {
			response := api.get(path+"?watch=true", "Accept", accept)
			if got := fmt.Sprint(response.field("message")); response.code != 406 || got != "only the following media types are accepted: "+want {
				t.Errorf("%s, %s: got status %d: %s, want status 406 and %v",
					path, accept, response.code, got, "only the following media types are accepted: "+want)
			}
		}
	}
}
