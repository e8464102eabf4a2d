package hostile

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestHangingWebhookOfManyPrincipalsDoesNotStopOtherClients writes as 60 users of one namespace,
// while a webhook does not respond. The attack takes longer than a probe client waits, so the test
// pins that requests release their seats and leave room for small bodies while they wait.
func TestHangingWebhookOfManyPrincipalsDoesNotStopOtherClients(t *testing.T) {
	const principals = 60
	tenants := startTenants(t)
	tenants.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings",
		`{"metadata":{"name":"users"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}`)
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
		"admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":30,"failurePolicy":"Ignore",
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"b"}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],
		"clientConfig":{"url":%q,"caBundle":%q}}]}`, webhook.URL, base64.StdEncoding.EncodeToString(ca)))
	clients := make([]*http.Client, principals)
	for i := range clients {
		clients[i] = newClient(tlsCertificate(t, tenants.server.PKI.Client(fmt.Sprint("user-", i))))
	}
	for _, test := range []struct {
		name                  string
		size, requestsPerUser int
	}{
		{name: "small objects", size: 10, requestsPerUser: 20},
		{name: "large objects", size: 700_000, requestsPerUser: 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			var created atomic.Int64
			value := strings.Repeat("x", test.size)
			tenants.attackFor(t, tenantProbeTimeout+5*time.Second, func(ctx context.Context) {
				runAttackers(ctx, principals*test.requestsPerUser, func(ctx context.Context, i int) {
					body := fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"a":%q}}`, created.Add(1), value)
					req, err := http.NewRequest(http.MethodPost, tenants.url+ownPath+"configmaps?dryRun=All", strings.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Content-Type", jsonMedia)
					if resp, err := clients[i%principals].Do(req.WithContext(ctx)); err == nil {
						resp.Body.Close()
					}
					pauseAttacker(ctx)
				})
			})
		})
	}
}
