package build

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
)

// authorizerWebhook is an authorization webhook with configurable responses. It records reviews.
type authorizerWebhook struct {
	file string // kubeconfig

	mu     sync.Mutex
	specs  []authorizationv1.SubjectAccessReviewSpec
	answer func(*authorizationv1.SubjectAccessReviewSpec) (int, authorizationv1.SubjectAccessReviewStatus)
}

// newAuthorizerWebhook starts an authorization webhook that records reviews.
func newAuthorizerWebhook(t *testing.T) *authorizerWebhook {
	t.Helper()
	webhook := &authorizerWebhook{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		webhook.mu.Lock()
		defer webhook.mu.Unlock()
		webhook.specs = append(webhook.specs, review.Spec)
		var code int
		code, review.Status = webhook.answer(&review.Spec)
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	client := clientcmdapi.NewConfig()
	client.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	client.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	client.CurrentContext = "x"
	webhook.file = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*client, webhook.file); err != nil {
		t.Fatal(err)
	}
	return webhook
}

// setResponse sets the response to all reviews.
func (z *authorizerWebhook) setResponse(code int, s authorizationv1.SubjectAccessReviewStatus) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.answer = func(*authorizationv1.SubjectAccessReviewSpec) (int, authorizationv1.SubjectAccessReviewStatus) {
		return code, s
	}
}

// reviews returns the reviews since the last call.
func (z *authorizerWebhook) reviews() []authorizationv1.SubjectAccessReviewSpec {
	z.mu.Lock()
	defer z.mu.Unlock()
	specs := z.specs
	z.specs = nil
	return specs
}

// TestAuthorizationWebhookDecides checks what the authorization webhook is asked, and that its answers,
// failures and cache decide requests.
func TestAuthorizationWebhookDecides(t *testing.T) {
	t.Parallel()
	webhook := newAuthorizerWebhook(t)
	webhook.setResponse(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	api := startServer(t, func(options *config.Options) {
		options.Authorization.Modes = []string{authzconfig.Webhook}
		options.Authorization.WebhookConfigFile = webhook.file
		options.Authorization.WebhookVersion = "v1"
	})

	// The server and the services of the suite are authorized without the webhook. The webhook is
	// asked about other users, with the selectors of the request.
	if reviews := webhook.reviews(); len(reviews) != 0 {
		t.Errorf("start of the server: got access reviews %+v, want none", reviews)
	}
	const pods = "/api/v1/namespaces/default/pods"
	api.mustSend(200, "GET", pods+"?fieldSelector=spec.nodeName%3Dn&labelSelector=a%3Db", "", asUser("alice", "dev")...)
	reviews := webhook.reviews()
	if len(reviews) != 1 {
		t.Fatalf("got access reviews %+v, want one", reviews)
	}
	if got := fmt.Sprint(reviews[0].User, reviews[0].Groups); got != "alice[dev system:authenticated]" {
		t.Errorf("got a review of %s, want one of alice[dev system:authenticated]", got)
	}
	if got := reviews[0].ResourceAttributes; got == nil || got.FieldSelector == nil || got.LabelSelector == nil {
		t.Errorf("got a review of %+v, want one with both selectors", got)
	}
	api.mustSend(200, "GET", pods, "", asUser("system:binnacle:authz-webhook", "system:binnacle")...)
	if reviews := webhook.reviews(); len(reviews) != 0 {
		t.Errorf("service of the suite: got access reviews %+v, want none", reviews)
	}

	// Cached decisions stay valid, whatever the webhook responds. A change of any
	// role invalidates them.
	listPods := func() int { return api.send("GET", pods, "", asUser("alice")...).code }
	if code := listPods(); code != 200 {
		t.Fatalf("allowed user: got status %d, want 200", code)
	}
	webhook.setResponse(200, authorizationv1.SubjectAccessReviewStatus{Reason: "no more"})
	if code := listPods(); code != 200 {
		t.Errorf("cached decision: got status %d, want 200", code)
	}
	api.mustSend(201, "POST", rbacPath+"/clusterroles", role("reader", readsPods))
	api.waitUntil("rejected", func() bool { return listPods() == 403 })
	response := api.mustSend(403, "GET", pods, "", asUser("alice")...)
	const denied = `pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default": no more`
	if text := response.field("message"); text != denied {
		t.Errorf("got message %v, want %s", text, denied)
	}

	// A failing webhook allows nothing, and is called again.
	webhook.setResponse(500, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	response = api.mustSend(500, "DELETE", pods+"/p", "", asUser("alice")...)
	const failed = `Internal Server Error: "/api/v1/namespaces/default/pods/p": `
	if text := string(response.body); !strings.HasPrefix(text, failed) {
		t.Errorf("got body %s, want it to begin with %s", text, failed)
	}
	if got := response.header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("got Content-Type %q, want text/plain; charset=utf-8", got)
	}
	api.mustSend(500, "PUT", pods+"/p", "{}", asUser("bob")...)
	api.mustSend(200, "GET", pods, "") // administrators are not affected
	webhook.setResponse(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	api.mustSend(404, "DELETE", pods+"/p", "", asUser("alice")...)
}

// TestAuthorizationConfigIsReloaded replaces the file of a running server.
func TestAuthorizationConfigIsReloaded(t *testing.T) {
	t.Parallel()
	webhook := newAuthorizerWebhook(t)
	webhook.setResponse(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	put := func(conditions, policy string) {
		t.Helper()
		content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: w\n  webhook:\n" +
			"    timeout: 10s\n    subjectAccessReviewVersion: v1\n    matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: " +
			policy + "\n" +
			"    connectionInfo: {type: KubeConfigFile, kubeConfigFile: " +
			webhook.file + "}\n    matchConditions: [" + conditions + "]\n- {type: RBAC, name: rbac}\n"
		if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(`{expression: "request.user != 'bob'"}, {expression: "request.resourceAttributes.namespace != ''"}`, "Deny")
	api := startServer(t, func(options *config.Options) { options.Authorization.ConfigFile = file })
	const pods = "/api/v1/namespaces/default/pods"
	api.mustSend(200, "GET", pods, "", asUser("alice")...)
	api.mustSend(403, "GET", pods, "", asUser("bob")...)       // the webhook is skipped, and RBAC has no opinion
	api.mustSend(500, "GET", "/version", "", asUser("ann")...) // a condition fails, and denies what RBAC would allow
	api.mustSend(200, "GET", "/version", "", asUser("bob")...) // a condition that is false outweighs one that fails
	reloads := func(status string) string {
		for line := range strings.Lines(string(api.mustSend(200, "GET", "/metrics", "").body)) {
			if strings.HasPrefix(line, "apiserver_authorization_config_controller_automatic_reloads_total") &&
				strings.Contains(line, status) {
				return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
			}
		}
		return ""
	}
	put(`{expression: "request.user == 'bob'"}`, "NoOpinion")
	api.waitUntil("the new file is in use", func() bool { return api.send("GET", pods, "", asUser("bob")...).code == 200 })
	api.mustSend(403, "GET", pods, "", asUser("alice")...)
	put(`{expression: "request.user =="}`, "NoOpinion")
	api.waitUntil("the bad file is noticed", func() bool { return reloads("failure") == "1" })
	api.mustSend(200, "GET", pods, "", asUser("bob")...)
	if n := reloads("success"); n != "1" {
		t.Errorf("got %s successful reloads, want 1", n)
	}
}
