package aggregation_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/aggregation"
)

// noGauge is the result of unavailable for an APIService that has no gauge.
const noGauge = -1

// unavailable returns the gauge of an APIService, or noGauge.
func unavailable(t *testing.T, agg *fixture, name string) float64 {
	t.Helper()
	all, err := agg.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "aggregator_unavailable_apiservice" && m.GetLabel()[0].GetValue() == name {
				return m.GetGauge().GetValue()
			}
		}
	}
	return noGauge
}

// TestUnavailableMetricExistsOnceAvailabilityIsKnown checks that the gauge exists once availability
// is known, and until the APIService is deleted.
func TestUnavailableMetricExistsOnceAvailabilityIsKnown(t *testing.T) {
	inBubble(t, unavailableMetricExistsOnceAvailabilityIsKnown)
}

func unavailableMetricExistsOnceAvailabilityIsKnown(t *testing.T, n *network) {
	authority := newAuthority(t)
	server := n.extend(t, authority.issueServing(), http.NotFound)
	requests, release := make(chan bool, 8), make(chan bool)
	agg := n.start(t, func(_ *fixture, c *aggregation.Config) {
		find := c.Service
		c.Service = func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			select {
			case requests <- true:
			default:
			}
			<-release
			return find(ctx, namespace, name)
		}
	})
	local := apiService(server.port, nil)
	local.Name, local.Spec.Version, local.Spec.Service = "v2.ext.test", "v2", nil
	agg.board.put(local.Name, local)
	agg.board.put(name, apiService(server.port, authority.pem))
	<-requests
	agg.waitForPass()
	agg.waitForPass() // the second pass publishes what the first found
	if ofLocal, ofRemote := unavailable(t, agg, local.Name), unavailable(t, agg, name); ofLocal != 0 || ofRemote != noGauge {
		t.Errorf("before the check: got gauges %v of the local APIService, %v of the remote one, want 0 and none", ofLocal, ofRemote)
	}
	close(release)
	agg.eventually("the server is unavailable", func() bool { return unavailable(t, agg, name) == 1 })
	server.handle(serveResources)
	agg.eventually("the server is available", func() bool { return unavailable(t, agg, name) == 0 })
	agg.board.put(name, nil)
	agg.eventually("the metric is removed", func() bool { return unavailable(t, agg, name) == noGauge })
	if ofLocal := unavailable(t, agg, local.Name); ofLocal != 0 {
		t.Errorf("after the deletion of the other: got gauge %v of the local APIService, want 0", ofLocal)
	}
}

// TestCertificateProblemsAreCountedByKind checks that problems of server certificates are counted
// by kind.
func TestCertificateProblemsAreCountedByKind(t *testing.T) {
	authority := newAuthority(t)
	for _, test := range []struct {
		name          string
		names         []string
		signed        x509.SignatureAlgorithm
		unnamed, sha1 float64
	}{
		{name: "no flaw", names: []string{"ext.agg.svc"}},
		{name: "no name", unnamed: 1},
		{name: "another name", names: []string{"another"}},
		{name: "signed with SHA-1", names: []string{"ext.agg.svc"}, signed: x509.ECDSAWithSHA1, sha1: 1},
	} {
		key := authority.newKey()
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber:       big.NewInt(2),
			Subject:            pkix.Name{CommonName: "ext.agg.svc"},
			NotAfter:           time.Now().Add(time.Hour),
			DNSNames:           test.names,
			ExtKeyUsage:        []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			KeyUsage:           x509.KeyUsageDigitalSignature,
			SignatureAlgorithm: test.signed,
		}, authority.cert, key.Public(), authority.key)
		if err != nil {
			t.Fatal(err)
		}
		server := startExtension(t, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, serveResourcesAndEcho)
		agg := start(t, nil)
		agg.register(server, authority.pem)
		responseRecorder := agg.send(eve, httptest.NewRequest("GET", thingPath, nil))
		if works := test.name == "no flaw"; (responseRecorder.Code == http.StatusTeapot) != works {
			t.Errorf("flaw %q: got status %d: %s, want the response of the server only without a flaw", test.name, responseRecorder.Code, responseRecorder.Body)
		}
		unnamed := sumMetric(t, agg, "apiserver_kube_aggregator_x509_missing_san_total")
		sha1 := sumMetric(t, agg, "apiserver_kube_aggregator_x509_insecure_sha1_total")
		if unnamed != test.unnamed || sha1 != test.sha1 {
			t.Errorf("%s: got %v without a name, %v signed with SHA-1: %s, want %v, %v",
				test.name, unnamed, sha1, responseRecorder.Body, test.unnamed, test.sha1)
		}
		agg.stop()
	}
}
