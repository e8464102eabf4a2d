package hostile

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// attackTime returns how long an attack of a tenant lasts: longer in the long form of the suite.
func (x *tenants) attackTime() time.Duration {
	if x.long {
		return time.Minute
	}
	return 10 * time.Second
}

// TestHangingWebhookOccupiesLittleMemory patches a large object while a validating webhook does not
// respond. The server must limit the memory of requests that wait for the webhook. attackFor checks
// the memory, the responses and the probe clients.
func TestHangingWebhookOccupiesLittleMemory(t *testing.T) {
	tenants := startTenants(t)
	data := map[string]string{}
	for i := range 20_000 {
		data[fmt.Sprint("key-", i)] = strings.Repeat("v", 30)
	}
	largeConfigMap, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": "large"}, "data": data})
	if err != nil {
		t.Fatal(err)
	}
	tenants.mustCreate(t, "/api/v1/namespaces/b/configmaps", string(largeConfigMap))
	testDone := make(chan struct{})
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-testDone:
		}
	}))
	defer webhook.Close()
	defer close(testDone)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	tenants.mustCreate(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{
		"metadata":{"name":"hangs"},"webhooks":[{"name":"hangs.ex.test",
		"admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":30,
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"b"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["configmaps"]}],
		"clientConfig":{"url":%q,"caBundle":%q}}]}`, webhook.URL, base64.StdEncoding.EncodeToString(ca)))
	tenants.attackFor(t, tenants.attackTime(), func(ctx context.Context) {
		runAttackers(ctx, 300, func(ctx context.Context, i int) {
			client := tenants.attackerClient()
			defer client.CloseIdleConnections()
			patch := fmt.Sprintf(`{"data":{"key-0":"%d"}}`, i)
			req, err := http.NewRequest("PATCH", tenants.url+"/api/v1/namespaces/b/configmaps/large", strings.NewReader(patch))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", mergePatchMedia)
			if resp, err := client.Do(req.WithContext(ctx)); err == nil {
				resp.Body.Close()
			}
			pauseAttacker(ctx)
		})
	})
}

// TestRolesWithManyNamesDoNotStarveOtherClients creates roles that each have 100,000 resource names,
// and then bindings to these roles. Before it allows a binding, the server compares all names of the
// role with the rules of the attacker. That comparison must not slow down the probe clients.
func TestRolesWithManyNamesDoNotStarveOtherClients(t *testing.T) {
	tenants := startTenants(t)
	names := make([]string, 100_000)
	for i := range names {
		names[i] = fmt.Sprintf("n%06d", i)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/b/"
	binding := func(name, role, user string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%q},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, name, role, user)
	}
	for i := range 10 {
		name := fmt.Sprint("many-", i)
		rule := map[string]any{
			"apiGroups": []string{""}, "resources": []string{"configmaps"}, "verbs": []string{"get"}, "resourceNames": names,
		}
		role, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": name}, "rules": []any{rule}})
		if err != nil {
			t.Fatal(err)
		}
		tenants.mustCreate(t, rbac+"roles", string(role))
		tenants.mustCreate(t, rbac+"rolebindings", binding(name, name, "mallory"))
	}
	tenants.attackFor(t, tenants.attackTime(), func(ctx context.Context) {
		runAttackers(ctx, 30, func(ctx context.Context, i int) {
			c := tenants.attackerClient()
			defer c.CloseIdleConnections()
			newBinding := binding("new", fmt.Sprint("many-", i%10), "eve")
			r := tenants.sendAndRead(c, "POST", rbac+"rolebindings?dryRun=All", jsonMedia, newBinding)
			if err := r.requireCode(http.StatusCreated, http.StatusTooManyRequests); err != nil && r.err == nil {
				t.Error(err)
			}
			pauseAttacker(ctx)
		})
	})
}

// TestHistoryOfOneObjectDoesNotFillDatabase writes one large object again and again. The server
// must compact the history before it fills the embedded etcd.
func TestHistoryOfOneObjectDoesNotFillDatabase(t *testing.T) {
	const quota = 128 << 20
	tenants := startTenants(t, harness.WithFlags(fmt.Sprint("--quota-backend-bytes=", quota)))
	tenants.mustCreate(t, "/api/v1/namespaces/b/configmaps", `{"metadata":{"name":"large"}}`)
	large := strings.Repeat("x", 1_000_000)
	tenants.attackFor(t, 0, func(ctx context.Context) {
		c := tenants.attackerClient()
		for i := range 3 * quota / len(large) {
			configMap := fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"a":"%d%s"}}`, i, large)
			r := tenants.sendAndRead(c, "PUT", "/api/v1/namespaces/b/configmaps/large", jsonMedia, configMap)
			if err := r.requireCode(http.StatusOK); err != nil {
				t.Fatalf("write %d of the large object: %v", i, err)
			}
		}
	})
}
