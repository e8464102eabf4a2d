package hostile

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/e2e/harness"
)

// decider is an authorization webhook that allows everything and counts the reviews of the probe
// client.
type decider struct {
	addr  string
	calls atomic.Int64
}

// startDecider starts a decider with a serving certificate of the server's CA.
func startDecider(t *testing.T, pki *harness.PKI) *decider {
	t.Helper()
	d := &decider{addr: fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))}
	listener, err := tls.Listen("tcp", d.addr, &tls.Config{
		Certificates: []tls.Certificate{tlsCertificate(t, pki.Serving("decider"))}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(d.decide), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return d
}

// decide allows the request in a review.
func (d *decider) decide(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if review.Spec.User == "probe" {
		d.calls.Add(1)
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// TestTenantDoesNotClearDecisionsOfOtherClients checks that a change invalidates only the cached
// decisions of the authorization webhook that it affects. The administrator of a namespace changes
// an annotation and the subjects of a role binding in a loop. Decisions about the probe client,
// which uses another namespace, must stay cached.
func TestTenantDoesNotClearDecisionsOfOtherClients(t *testing.T) {
	var decisions *decider
	tenants := startTenants(t, func(s *harness.Server) {
		decisions = startDecider(t, s.PKI)
		harness.WithAccessWebhook(decisions.addr)(s)
	})
	const binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings/administrator"
	probe, mallory := newClient(tlsCertificate(t, tenants.server.PKI.Client("probe"))), tenants.attackerClient()
	readAsProbe := func() {
		for range 20 {
			r := tenants.sendAndRead(probe, "GET", "/api/v1/namespaces/probe/configmaps/mine", "", "")
			if err := r.requireCode(http.StatusOK); err != nil {
				t.Fatalf("read of the probe client: %v", err)
			}
		}
	}
	var callsBefore, callsAfter int64
	changes := 30
	if tenants.long {
		changes = 500
	}
	tenants.attackFor(t, 0, func(context.Context) {
		readAsProbe() // fills the cache
		callsBefore = decisions.calls.Load()
		for i := range changes {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, i)
			if i%2 == 1 {
				patch = fmt.Sprintf(`{"subjects":[
					{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"},
					{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"other-%d"}]}`, i)
			}
			if err := tenants.sendAndRead(mallory, "PATCH", binding, mergePatchMedia, patch).requireCode(http.StatusOK); err != nil {
				t.Fatalf("change %d of the role binding: %v", i, err)
			}
			readAsProbe()
		}
		callsAfter = decisions.calls.Load()
	})
	// Decisions about other requests of the probe client may expire from the cache meanwhile.
	if calls := callsAfter - callsBefore; calls > int64(changes)/2 {
		t.Errorf("got %d webhook calls for the probe client during %d changes in another namespace, want at most %d",
			calls, changes, changes/2)
	}
}
