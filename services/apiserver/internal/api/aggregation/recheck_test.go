package aggregation_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/cache/objects"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// TestOnlyChangedServersAreChecked checks that a server is checked when its APIService, service or
// endpoints change, and only changed APIServices are decoded.
func TestOnlyChangedServersAreChecked(t *testing.T) { inBubble(t, onlyChangedServersAreChecked) }

func onlyChangedServersAreChecked(t *testing.T, n *network) {
	authority := newAuthority(t)
	quiet := n.extend(t, authority.issueServing(), serveResources)
	busy := n.extend(
		t,
		authority.issue("busy.agg.svc", x509.ExtKeyUsageServerAuth),
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
	)
	var later, decoded atomic.Int64
	agg := n.start(t, func(agg *fixture, config *aggregation.Config) {
		start := time.Now()
		config.Now = func() time.Time { return start.Add(time.Duration(later.Load())) }
		agg.services["agg/busy"] = &corev1.Service{
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}
		decode := config.Decode
		config.Decode = func(e *objects.Entry) (*apiregistrationv1.APIService, error) {
			decoded.Add(1)
			return decode(e)
		}
	})
	agg.register(quiet, authority.pem)
	other := apiService(busy.port, authority.pem)
	other.Name, other.Spec.Version, other.Spec.Service.Name = "v2.ext.test", "v2", "busy"
	agg.board.put(other.Name, other)
	for _, service := range []string{name, other.Name} {
		agg.eventually(service+" is available", func() bool { return agg.condition(service) == passed })
	}
	agg.eventually(
		"discovery is complete",
		func() bool { return len(quiet.requests("/openapi/v3")) > 0 && len(busy.requests("/openapi/v3")) > 0 },
	)
	agg.eventually("the aggregator has read the conditions", func() bool {
		n := 0
		for s := range agg.Registered() {
			n += len(s.Status.Conditions)
		}
		return n == 2
	})
	quietChecks := func() int { return len(quiet.requests("/apis/ext.test/v1")) }
	before := quietChecks()
	for round := range 3 {
		busyChecks := len(busy.requests("/openapi/v3"))
		later.Add(int64(2 * time.Second)) // less than the time between two checks
		s := agg.board.get(other.Name)
		s.Annotations = map[string]string{"round": fmt.Sprint(round)}
		read := decoded.Load()
		agg.board.put(other.Name, s)
		agg.eventually("the aggregator has read the change", func() bool { agg.Versions(); return decoded.Load() > read })
		if n := decoded.Load() - read; n != 1 {
			t.Errorf("decoded %d APIServices, want 1", n)
		}
		agg.ServiceChanged("agg", "busy")
		agg.ServiceChanged("agg", "absent")
		agg.eventually("the server is checked", func() bool { return len(busy.requests("/openapi/v3")) > busyChecks })
	}
	if n := quietChecks() - before; n > 2 { // one check may precede the first published result
		t.Errorf("got %d checks of the unchanged server, want at most 2", n)
	}
}

// TestChangedServerIsCheckedOncePerSecond checks that a client that changes its APIService in a
// loop does not cause a check for each change. Each check requests several documents.
func TestChangedServerIsCheckedOncePerSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		ca := newAuthority(t)
		server := n.extend(t, ca.issueServing(), serveResources)
		agg := n.start(t, nil)
		agg.register(server, ca.pem)
		time.Sleep(10 * time.Second) // of the bubble
		before := len(server.requests("/openapi/v3"))
		for i := range int32(20) {
			s := agg.board.get(name)
			s.Spec.VersionPriority = 20 + i
			agg.board.put(name, s)
			agg.Versions()
			synctest.Wait()
		}
		if got := len(server.requests("/openapi/v3")) - before; got > 1 {
			t.Errorf("got %d checks for 20 changes at once, want at most 1", got)
		}
		time.Sleep(2 * time.Second)
		if got := len(server.requests("/openapi/v3")) - before; got == 0 || got > 2 {
			t.Errorf("got %d checks within 2 s, want 1 or 2", got)
		}
	})
}
