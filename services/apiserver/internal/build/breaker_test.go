package build

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// newRejectingWebhook starts a validating webhook that rejects everything. It aborts the connection
// of requests about objects that are labeled poison.
func newRejectingWebhook(t *testing.T, at string) (server *httptest.Server, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
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
		asked.Add(1)
		if review.Request.Object.Metadata.Labels["poison"] != "" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":"never"}}}`, review.Request.UID)
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
	return server, asked
}

func hookFor(name, url, policy string, server *httptest.Server) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"a.b.c","failurePolicy":%q,"timeoutSeconds":5,"clientConfig":{"url":%q,"caBundle":%q},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}]}`, name, policy, url, ca)
}

const hooksPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

// TestBreakerOfWebhookIsPerNamespace checks that requests that make a webhook fail affect only the
// namespace that they come from.
func TestBreakerOfWebhookIsPerNamespace(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	hook, asked := newRejectingWebhook(t, "")
	for _, ns := range []string{"one", "two"} {
		a.want(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
	}
	for _, policy := range []string{"Ignore", "Fail"} {
		name := strings.ToLower(policy)
		a.want(201, "POST", hooksPath, hookFor(name, hook.URL, policy, hook))
		for range failuresThatOpen {
			a.send("POST", "/api/v1/namespaces/one/configmaps?dryRun=All", `{"metadata":{"name":"p","labels":{"poison":"1"}}}`)
		}
		for range 3 {
			before := asked.Load()
			if r := a.send("POST", "/api/v1/namespaces/two/configmaps", `{"metadata":{"name":"x"}}`); r.code != 400 || asked.Load() == before {
				t.Errorf("%s: another namespace: %d %s, asked %d times", policy, r.code, r.body, asked.Load()-before)
			}
		}
		r := a.send("POST", "/api/v1/namespaces/one/configmaps", `{"metadata":{"name":"x"}}`)
		if want := map[string]int{"Ignore": 400, "Fail": 500}[policy]; r.code != want {
			t.Errorf("%s: the same namespace: %d %s", policy, r.code, r.body)
		}
		a.want(200, "DELETE", hooksPath+"/"+name, "")
	}
}

// failuresThatOpen is the number of consecutive failures that open the breaker.
const failuresThatOpen = 3

// TestUnreachableWebhookIsSkippedUntilItReturns checks that requests do not wait for a webhook that
// is known to be unreachable, and that it is called again when it is back.
func TestUnreachableWebhookIsSkippedUntilItReturns(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	other, _ := newRejectingWebhook(t, "") // all test servers have the same certificate
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := gone.Addr().String()
	gone.Close()
	a.want(201, "POST", hooksPath, hookFor("gone", "https://"+at, "Fail", other))
	for range failuresThatOpen {
		a.want(500, "POST", "/api/v1/namespaces/default/configmaps", configMap("x"))
	}
	r := a.want(500, "POST", "/api/v1/namespaces/kube-system/configmaps", configMap("x"))
	if r.header.Get("Retry-After") == "" {
		t.Errorf("known to be gone, but without Retry-After: %s", r.body)
	}
	a.want(200, "DELETE", hooksPath+"/gone", "")
	a.want(201, "POST", "/api/v1/namespaces/default/configmaps", configMap("x"))

	// The webhook returns at the same address.
	a.want(201, "POST", hooksPath, hookFor("back", "https://"+at, "Fail", other))
	for range failuresThatOpen {
		a.want(500, "POST", "/api/v1/namespaces/default/configmaps", configMap("y"))
	}
	_, asked := newRejectingWebhook(t, at)
	a.eventually("asking it again", func() bool {
		return a.send("POST", "/api/v1/namespaces/default/configmaps", configMap("y")).code == 400
	})
	if asked.Load() == 0 {
		t.Error("it was never asked")
	}
}
