package modes_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"binnacle/libs/authorizer"
	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
	"binnacle/services/apiserver/internal/security/authz/modes"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newBuilderWithoutNodes returns a builder whose policy does not follow the resources of the node
// authorizer.
func newBuilderWithoutNodes(t *testing.T) *modes.Builder {
	t.Helper()
	b := newBuilder(t)
	b.Nodes = false
	return b
}

// newBuilder returns a builder for all modes.
func newBuilder(t *testing.T) *modes.Builder {
	t.Helper()
	conditions, err := authzwebhook.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return &modes.Builder{
		Policy:         authz.NewPolicy(authz.PolicyConfig{}),
		Nodes:          true,
		FeatureEnabled: features.New().Enabled,
		Conditions:     conditions,
		Metrics:        authz.NewMetrics(prometheus.NewRegistry()),
		WebhookMetrics: authzwebhook.NewMetrics(prometheus.NewRegistry()),
		Logger:         slog.New(slog.DiscardHandler),
	}
}

// newGetRequest returns the attributes of a GET of the path /x by a user.
func newGetRequest(user string, groups ...string) *authorizer.Attributes {
	return &authorizer.Attributes{User: &authorizer.User{Name: user, Groups: groups}, Verb: "get", Path: "/x"}
}

// TestFirstConfiguredAuthorizerWithOpinionDecides checks that the built-in authorizers of every server
// decide first, and then the configured ones in their order.
func TestFirstConfiguredAuthorizerWithOpinionDecides(t *testing.T) {
	policies := filepath.Join(t.TempDir(), "policies")
	line := `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","nonResourcePath":"*"}}`
	if err := os.WriteFile(policies, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		modes, user, groups string
		want                authorizer.Decision
		reason              string
	}{
		{modes: "AlwaysAllow", user: "bob", want: authorizer.Allow, reason: ""},
		{modes: "AlwaysDeny", user: "bob", want: authorizer.NoOpinion, reason: "Everything is forbidden."},
		{modes: "AlwaysDeny,AlwaysAllow", user: "bob", want: authorizer.Allow, reason: ""}, // AlwaysDeny has no opinion
		{modes: "AlwaysDeny", user: "bob", groups: "system:masters", want: authorizer.Allow, reason: ""},
		{modes: "ABAC", user: "alice", want: authorizer.Allow, reason: ""},
		{modes: "ABAC", user: "bob", want: authorizer.NoOpinion, reason: "No policy matched."},
		{modes: "Node,RBAC,ABAC", user: "alice", want: authorizer.Allow, reason: ""},
		{
			modes:  "AlwaysDeny,ABAC",
			user:   "bob",
			want:   authorizer.NoOpinion,
			reason: "Everything is forbidden.\nNo policy matched.",
		},
		{modes: "Node,RBAC", user: "bob", want: authorizer.NoOpinion, reason: ""},
	} {
		r, err := modes.New(newBuilder(t), authzconfig.FromFlags(authzconfig.Flags{
			Modes:      strings.Split(test.modes, ","),
			PolicyFile: policies,
		}))
		if err != nil {
			t.Fatal(err)
		}
		d, reason, err := r.Authorize(t.Context(), newGetRequest(test.user, strings.Fields(test.groups)...))
		if d != test.want || reason != test.reason || err != nil {
			t.Errorf("%s for %s: got %v %q %v; want %v, %v, no error", test.modes, test.user, d, reason, err, test.want, test.reason)
		}
		r.Close()
	}
}

// TestFeatureGatesDisableSelectors checks that feature gates disable the evaluation of selectors.
func TestFeatureGatesDisableSelectors(t *testing.T) {
	listAttributes := func(resource, selector string) *authorizer.Attributes {
		return &authorizer.Attributes{
			User:          &authorizer.User{Name: "system:node:n", Groups: []string{"system:nodes"}},
			Verb:          "list",
			Resource:      true,
			Version:       "v1",
			ResourceName:  resource,
			FieldSelector: fields.ParseSelectorOrDie(selector).Requirements(),
		}
	}
	mine, all, nodes := listAttributes("pods", "spec.nodeName=n"), listAttributes("pods", ""), listAttributes("nodes", "")
	for _, test := range []struct {
		readAll, noSelectors bool
		allowed              [3]bool // mine, all, nodes
	}{
		{readAll: false, noSelectors: false, allowed: [3]bool{true, false, false}},
		{readAll: false, noSelectors: true, allowed: [3]bool{false, false, false}},
		{readAll: true, noSelectors: false, allowed: [3]bool{true, true, true}},
		{readAll: true, noSelectors: true, allowed: [3]bool{true, true, true}},
	} {
		b := newBuilder(t)
		b.FeatureEnabled = func(g features.Gate) bool {
			return g == features.AuthorizeNodeWithSelectors && !test.readAll || g == features.AuthorizeWithSelectors && !test.noSelectors
		}
		reloadable, err := modes.New(b, authzconfig.FromFlags(authzconfig.Flags{Modes: []string{"Node"}}))
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range []*authorizer.Attributes{mine, all, nodes} {
			if d, _, err := reloadable.Authorize(t.Context(), a); err != nil || (d == authorizer.Allow) != test.allowed[i] {
				t.Errorf("reads all %v, no selectors %v, %s: got %v %v; want no error, %v",
					test.readAll, test.noSelectors, a.ResourceName, d, err, test.allowed[i])
			}
		}
		if len(mine.FieldSelector) != 1 {
			t.Error("got modified attributes, want them unchanged")
		}
		reloadable.Close()
	}
}

// TestRulesOfAllAuthorizersAreJoined checks that RulesFor joins the rules of all authorizers and reports
// the authorizers that cannot list any.
func TestRulesOfAllAuthorizersAreJoined(t *testing.T) {
	r, err := modes.New(newBuilder(t), authzconfig.FromFlags(authzconfig.Flags{Modes: []string{"Node", "AlwaysAllow"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rules, err := r.RulesFor(t.Context(), &authorizer.User{Name: "alice"}, "a")
	if len(rules.Resource) != 1 || len(rules.NonResource) != 1 || rules.Incomplete || err != nil {
		t.Errorf("got %+v, %v; want length 1, length 1, false, no error", rules, err)
	}
	rules, err = r.RulesFor(t.Context(), &authorizer.User{Name: "system:node:n", Groups: []string{"system:nodes"}}, "a")
	if !rules.Incomplete || err == nil || err.Error() != "node authorizer does not support user rule resolution" {
		t.Errorf("got %+v, %v; want true, an error, \"node authorizer does not support user rule resolution\"", rules, err)
	}
}

// startWebhook starts a webhook that allows the path /x for some users.
func startWebhook(t *testing.T, allowed func(user string) bool) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		user, _ := review["spec"].(map[string]any)["user"].(string)
		review["status"] = map[string]any{"allowed": allowed(user)}
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
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func webhookFile(kubeconfig string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: w\n  webhook:\n" +
		"    timeout: 10s\n    subjectAccessReviewVersion: v1\n    matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: NoOpinion\n" +
		"    connectionInfo: {type: KubeConfigFile, kubeConfigFile: " + kubeconfig + "}\n"
}

// recordingHandler sends logged messages to a channel.
type recordingHandler struct {
	slog.Handler
	texts chan string
}

func (l recordingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (l recordingHandler) Handle(_ context.Context, r slog.Record) error {
	l.texts <- r.Message
	return nil
}

// TestReloadKeepsAuthorizersOfInvalidFile changes the configuration file. An invalid file keeps the
// previous authorizers.
func TestReloadKeepsAuthorizersOfInvalidFile(t *testing.T) {
	var calls atomic.Int64
	first := startWebhook(t, func(user string) bool { calls.Add(1); return user == "alice" })
	second := startWebhook(t, func(user string) bool { return user == "bob" })
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile := func(content string) {
		if err := errors.Join(os.WriteFile(file+".new", []byte(content), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}

	// 1. Start with a webhook that allows alice.
	writeFile(webhookFile(first))
	b := newBuilderWithoutNodes(t)
	parse := func() *authzconfig.Configuration {
		c, err := authzconfig.Parse([]byte(webhookFile(first)), b.Conditions)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	reloadable, err := modes.New(b, parse())
	if err != nil {
		t.Fatal(err)
	}
	defer reloadable.Close()

	// 2. Follow the file.
	registry := prometheus.NewRegistry()
	texts := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- reloadable.Follow(ctx, file, []byte(webhookFile(first)),
			modes.NewReloadMetrics(registry, "me"), slog.New(recordingHandler{slog.DiscardHandler, texts}))
	}()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("follow: %v, want %v", err, context.Canceled)
		}
	}()
	isAllowed := func(user string) bool {
		t.Helper()
		d, _, err := reloadable.Authorize(t.Context(), newGetRequest(user))
		if err != nil {
			t.Fatal(err)
		}
		return d == authorizer.Allow
	}
	if got := fmt.Sprint(isAllowed("alice"), isAllowed("bob")); got != "true false" {
		t.Fatalf("first configuration: got alice, bob allowed: %s, want true false", got)
	}

	// 3. Invalid files are logged and change nothing.
	for i, bad := range []string{
		"nonsense", webhookFile("/no/such/file"),
		strings.ReplaceAll(webhookFile(first), "type: Webhook\n  name: w", "type: Node\n  name: node"),
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: Node, name: node}]\n",
		webhookFile(second) + "- {type: Node, name: node}\n", // has no node authorizer at startup
	} {
		writeFile(bad)
		if text := <-texts; text != "failed to reload authorization configuration; keeping the previous one" {
			t.Errorf("%d: got log %q, want \"failed to reload authorization configuration; keeping the previous one\"", i, text)
		}
		if !isAllowed("alice") || isAllowed("bob") {
			t.Errorf("invalid file %d: got other decisions, want those of the previous file", i)
		}
	}

	// 4. A valid file replaces the webhook by one that allows bob.
	writeFile(webhookFile(second))
	if text := <-texts; text != "authorization configuration reloaded" {
		t.Errorf("got log %q, want \"authorization configuration reloaded\"", text)
	}
	if got := fmt.Sprint(isAllowed("alice"), isAllowed("bob")); got != "false true" {
		t.Errorf("new configuration: got alice, bob allowed: %s, want false true", got)
	}

	// 5. The metrics count both results, and have a hash as the identity of the server.
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if !strings.HasPrefix(m.Label[0].GetValue(), "sha256:") {
				t.Errorf("%s: got %v, want prefix \"sha256:\"", f.GetName(), m.Label)
			}
			counts[f.GetName()+" "+m.Label[1].GetValue()] = m.GetCounter().GetValue()
		}
	}
	const prefix = "apiserver_authorization_config_controller_automatic_"
	if len(counts) != 4 || counts[prefix+"reloads_total failure"] != 5 || counts[prefix+"reloads_total success"] != 1 {
		t.Errorf("got metrics %v, want 4 series with 5 failures and 1 success", counts)
	}
}
