package build

import (
	"testing"
	"time"
)

// TestConversionEndsWithItsRequests checks that the call of a hanging conversion webhook ends with
// the last request that waits for it, and that a later request calls the webhook again.
func TestConversionEndsWithItsRequests(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api, converters := startServer(t, nil), newConverters(t)
	api.mustSend(201, "POST", definitionsPath, converters.definition("things", "Thing"))
	api.mustSend(201, "POST", "/apis/example.com/v1/namespaces/default/things",
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	release := converters.holding()
	defer release()
	for _, path := range []string{
		"/apis/example.com/v2/namespaces/default/things/a", "/apis/example.com/v3/namespaces/default/things",
	} {
		if response := api.send("GET", path+"?timeout=1s", ""); response.code != 504 {
			t.Errorf("%s, hanging webhook: got status %d: %.300s, want 504", path, response.code, response.body)
		}
		select {
		case <-converters.gone:
		case <-time.After(20 * time.Second): // less than the timeout of the webhook
			t.Fatalf("%s: the webhook call continues, want it canceled with its request", path)
		}
	}
	release()
	api.mustSend(200, "GET", "/apis/example.com/v2/namespaces/default/things/a", "")
}
