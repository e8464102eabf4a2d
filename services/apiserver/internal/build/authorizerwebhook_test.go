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
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	c.CurrentContext = "x"
	webhook.file = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, webhook.file); err != nil {
		t.Fatal(err)
	}
	return webhook
}

// says sets the response.
func (z *authorizerWebhook) says(code int, s authorizationv1.SubjectAccessReviewStatus) {
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

// TestAuthorizationWebhook checks what the authorization webhook is asked, and that its answers,
// failures and cache decide requests.
func TestAuthorizationWebhook(t *testing.T) {
	t.Parallel()
	webhook := newAuthorizerWebhook(t)
	webhook.says(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	api := start(t, func(o *config.Options) {
		o.Authorization.Modes = []string{authzconfig.Webhook}
		o.Authorization.WebhookConfigFile = webhook.file
		o.Authorization.WebhookVersion = "v1"
	})

	// The server and the services of the suite are authorized without the webhook. The webhook is
	// asked about other users, with the selectors of the request.
	if reviews := webhook.reviews(); len(reviews) != 0 {
		t.Errorf("start of the server: got access reviews %+v, want none", reviews)
	}
	const pods = "/api/v1/namespaces/default/pods"
	api.want(200, "GET", pods+"?fieldSelector=spec.nodeName%3Dn&labelSelector=a%3Db", "", as("alice", "dev")...)
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
	api.want(200, "GET", pods, "", as("system:binnacle:authz-webhook", "system:binnacle")...)
	if reviews := webhook.reviews(); len(reviews) != 0 {
		t.Errorf("service of the suite: got access reviews %+v, want none", reviews)
	}

	// Cached decisions stay valid, whatever the webhook responds. A change of any
	// role invalidates them.
	reads := func() int { return api.send("GET", pods, "", as("alice")...).code }
	if code := reads(); code != 200 {
		t.Fatalf("allowed user: got status %d, want 200", code)
	}
	webhook.says(200, authorizationv1.SubjectAccessReviewStatus{Reason: "no more"})
	if code := reads(); code != 200 {
		t.Errorf("cached decision: got status %d, want 200", code)
	}
	api.want(201, "POST", rbacPath+"/clusterroles", role("reader", readsPods))
	api.eventually("rejected", func() bool { return reads() == 403 })
	answer := api.want(403, "GET", pods, "", as("alice")...)
	const denied = `pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default": no more`
	if text := answer.at("message"); text != denied {
		t.Errorf("got message %v, want %s", text, denied)
	}

	// A failing webhook allows nothing, and is called again.
	webhook.says(500, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	answer = api.want(500, "DELETE", pods+"/p", "", as("alice")...)
	const failed = `Internal Server Error: "/api/v1/namespaces/default/pods/p": `
	if text := string(answer.body); !strings.HasPrefix(text, failed) {
		t.Errorf("got body %s, want it to begin with %s", text, failed)
	}
	if got := answer.header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("got Content-Type %q, want text/plain; charset=utf-8", got)
	}
	api.want(500, "PUT", pods+"/p", "{}", as("bob")...)
	api.want(200, "GET", pods, "") // administrators are not affected
	webhook.says(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	api.want(404, "DELETE", pods+"/p", "", as("alice")...)
}

// TestAuthorizationConfigIsReloaded replaces the file of a running server.
func TestAuthorizationConfigIsReloaded(t *testing.T) {
	t.Parallel()
	z := newAuthorizerWebhook(t)
	z.says(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	put := func(conditions, policy string) {
		t.Helper()
		content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: w\n  webhook:\n" +
			"    timeout: 10s\n    subjectAccessReviewVersion: v1\n    matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: " +
			policy + "\n" +
			"    connectionInfo: {type: KubeConfigFile, kubeConfigFile: " +
			z.file + "}\n    matchConditions: [" + conditions + "]\n- {type: RBAC, name: rbac}\n"
		if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put(`{expression: "request.user != 'bob'"}, {expression: "request.resourceAttributes.namespace != ''"}`, "Deny")
	api := start(t, func(o *config.Options) { o.Authorization.ConfigFile = file })
	const pods = "/api/v1/namespaces/default/pods"
	api.want(200, "GET", pods, "", as("alice")...)
	api.want(403, "GET", pods, "", as("bob")...)       // the webhook is skipped, and RBAC has no opinion
	api.want(500, "GET", "/version", "", as("ann")...) // a condition fails, and denies what RBAC would allow
	api.want(200, "GET", "/version", "", as("bob")...) // a condition that is false outweighs one that fails
	reloads := func(status string) string {
		for line := range strings.Lines(string(api.want(200, "GET", "/metrics", "").body)) {
			if strings.HasPrefix(line, "apiserver_authorization_config_controller_automatic_reloads_total") &&
				strings.Contains(line, status) {
				return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
			}
		}
		return ""
	}
	put(`{expression: "request.user == 'bob'"}`, "NoOpinion")
	api.eventually("the new file is in use", func() bool { return api.send("GET", pods, "", as("bob")...).code == 200 })
	api.want(403, "GET", pods, "", as("alice")...)
	put(`{expression: "request.user =="}`, "NoOpinion")
	api.eventually("the bad file is noticed", func() bool { return reloads("failure") == "1" })
	api.want(200, "GET", pods, "", as("bob")...)
	if n := reloads("success"); n != "1" {
		t.Errorf("got %s successful reloads, want 1", n)
	}
}

// TestNodeRestrictionPlugins checks that the plugins are enabled and in their place.
func TestNodeRestrictionPlugins(t *testing.T) {
	t.Parallel()
	api := start(t, withRBAC)
	node := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, name)
	}
	n1 := as("system:node:n1", "system:nodes")
	made := api.want(201, "POST", "/api/v1/nodes", node("n1"), n1...)
	if taints := fmt.Sprint(made.at("spec", "taints")); !strings.Contains(taints, "node.kubernetes.io/not-ready") {
		t.Errorf("got taints %s, want node.kubernetes.io/not-ready", taints)
	}
	r := api.want(403, "POST", "/api/v1/nodes", node("n2"), n1...)
	const otherNode = `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`
	if text := r.at("message"); text != otherNode {
		t.Errorf("got message %v, want %s", text, otherNode)
	}
	api.want(201, "POST", "/api/v1/namespaces/default/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"sa"}}`)
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"nodeName":%q,"serviceAccountName":"sa","containers":[{"name":"c","image":"i"}],"volumes":[{"name":"t","projected":{"sources":[{"serviceAccountToken":{"audience":"vault","path":"t"}}]}}]}}`
	const pods = "/api/v1/namespaces/default/pods"
	api.want(201, "POST", pods, fmt.Sprintf(pod, "mine", "n1"))
	api.want(201, "POST", pods, fmt.Sprintf(pod, "theirs", "n2"))
	api.want(403, "DELETE", pods+"/theirs", "", n1...)
	api.want(200, "DELETE", pods+"/mine?gracePeriodSeconds=0", "", n1...)
	api.want(404, "DELETE", pods+"/mine", "", n1...)
}

// TestNodesWriteOnlyOwnResourceSlices covers both versions of the kind, which is off by default.
func TestNodesWriteOnlyOwnResourceSlices(t *testing.T) {
	t.Parallel()
	api := start(t, func(o *config.Options) {
		withRBAC(o)
		if err := o.RuntimeConfig.Set("resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"); err != nil {
			t.Fatal(err)
		}
	})
	n1 := as("system:node:n1", "system:nodes")
	for _, version := range []string{"v1beta1", "v1beta2"} {
		path := "/apis/resource.k8s.io/" + version + "/resourceslices"
		slice := func(name, node string) string {
			return fmt.Sprintf(`{"apiVersion":"resource.k8s.io/%s","kind":"ResourceSlice","metadata":{"name":%q},"spec":{"driver":"d.example.com","nodeName":%q,"pool":{"name":"p","resourceSliceCount":1}}}`,
				version, name, node)
		}
		r := api.want(403, "POST", path, slice("forged", "n2"), n1...)
		text := r.at("message")
		if text != `resourceslices.resource.k8s.io "forged" is forbidden: can only create ResourceSlice with the same NodeName as the requesting node` {
			t.Errorf("got message %v, want one about the NodeName of the ResourceSlice", text)
		}
		api.want(201, "POST", path, slice("mine-"+version, "n1"), n1...)
		api.want(201, "POST", path, slice("theirs-"+version, "n2"))
		api.eventually("seen", func() bool { return api.get(path+"/mine-"+version, n1...).code == 200 })
		api.want(403, "GET", path+"/theirs-"+version, "", n1...)
		api.want(403, "DELETE", path+"/theirs-"+version, "", n1...)
		api.want(403, "GET", path, "", n1...)
		api.want(403, "GET", path+"?fieldSelector=spec.nodeName%3Dn2", "", n1...)
		api.want(200, "GET", path+"?fieldSelector=spec.nodeName%3Dn1", "", n1...)
		api.want(200, "DELETE", path+"?fieldSelector=spec.nodeName%3Dn1", "", n1...)
		api.want(404, "GET", path+"/mine-"+version, "")
		api.want(200, "GET", path+"/theirs-"+version, "")
	}
}
