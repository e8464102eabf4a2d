package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// newRejectingWebhook starts a validating webhook that rejects everything. It aborts the connection
// of requests about objects that are labeled poison.
func newRejectingWebhook(t *testing.T, at string) (server *httptest.Server, calls *atomic.Int64) {
	t.Helper()
	calls = &atomic.Int64{}
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID    string `json:"uid"`
				Object struct {
					Metadata struct{ Labels map[string]string }
				}
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		calls.Add(1)
		if review.Request.Object.Metadata.Labels["poison"] != "" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":"never"}}}`,
			review.Request.UID)
	}))
	if at != "" {
		server.Listener.Close()
		var err error
		if server.Listener, err = net.Listen("tcp", at); err != nil {
			t.Fatal(err)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, calls
}

func hookFor(name, url, policy string, server *httptest.Server) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"a.b.c","failurePolicy":%q,"timeoutSeconds":5,"clientConfig":{"url":%q,"caBundle":%q},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}]}`, name, policy, url, ca)
}

const hooksPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

// failuresThatOpen is the number of consecutive failures that open the breaker.
const failuresThatOpen = 3

// TestUnreachableWebhookIsSkippedUntilItReturns checks that requests do not wait for a webhook that
// is known to be unreachable, and that it is called again when it is back.
func TestUnreachableWebhookIsSkippedUntilItReturns(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	other, _ := newRejectingWebhook(t, "") // all test servers have the same certificate
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := gone.Addr().String()
	gone.Close()
	api.mustSend(201, "POST", hooksPath, hookFor("gone", "https://"+address, "Fail", other))
	for range failuresThatOpen {
		api.mustSend(500, "POST", "/api/v1/namespaces/default/configmaps", configMap("x"))
	}
	response := api.mustSend(500, "POST", "/api/v1/namespaces/kube-system/configmaps", configMap("x"))
	if response.header.Get("Retry-After") == "" {
		t.Errorf("open circuit: got no Retry-After, want one: %s", response.body)
	}
	api.mustSend(200, "DELETE", hooksPath+"/gone", "")
	api.mustSend(201, "POST", "/api/v1/namespaces/default/configmaps", configMap("x"))

	// The webhook returns at the same address.
	api.mustSend(201, "POST", hooksPath, hookFor("back", "https://"+address, "Fail", other))
	for range failuresThatOpen {
		api.mustSend(500, "POST", "/api/v1/namespaces/default/configmaps", configMap("y"))
	}
	_, calls := newRejectingWebhook(t, address)
	api.waitUntil("asking it again", func() bool {
		return api.send("POST", "/api/v1/namespaces/default/configmaps", configMap("y")).code == 400
	})
	if calls.Load() == 0 {
		t.Error("got no call of the webhook, want at least one")
	}
}
