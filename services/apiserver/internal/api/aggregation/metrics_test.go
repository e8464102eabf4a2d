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

// unavailable returns the gauge of an APIService, or -1 if it has none.
func unavailable(t *testing.T, b *fixture, name string) float64 {
	t.Helper()
	all, err := b.registry.Gather()
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
	return -1
}

// TestUnavailableMetric checks that the gauge exists once availability is known, and until the
// APIService is deleted.
func TestUnavailableMetric(t *testing.T) { inBubble(t, unavailableMetric) }

func unavailableMetric(t *testing.T, n *network) {
	ca := newAuthority(t)
	e := n.extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), http.NotFound)
	requests, goOn := make(chan bool, 8), make(chan bool)
	b := n.start(t, func(_ *fixture, c *aggregation.Config) {
		find := c.Service
		c.Service = func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			select {
			case requests <- true:
			default:
			}
			<-goOn
			return find(ctx, namespace, name)
		}
	})
	local := apiService(e.port, nil)
	local.Name, local.Spec.Version, local.Spec.Service = "v2.ext.test", "v2", nil
	b.board.put(local.Name, local)
	b.board.put(name, apiService(e.port, ca.pem))
	<-requests
	b.waitForPass()
	b.waitForPass() // the second pass publishes what the first found
	if ownHeaders, other := unavailable(t, b, local.Name), unavailable(t, b, name); ownHeaders != 0 || other != -1 {
		t.Errorf("before the check: got %v for the local APIService, %v for the remote one, want 0", ownHeaders, other)
	}
	close(goOn)
	b.eventually("the server is unavailable", func() bool { return unavailable(t, b, name) == 1 })
	e.handle(serveResources)
	b.eventually("the server is available", func() bool { return unavailable(t, b, name) == 0 })
	b.board.put(name, nil)
	b.eventually("the metric is removed", func() bool { return unavailable(t, b, name) == -1 })
	if ownHeaders := unavailable(t, b, local.Name); ownHeaders != 0 {
		t.Errorf("local APIService: got %v, want 0", ownHeaders)
	}
}

// TestCertificateMetrics checks that problems of server certificates are counted by kind.
func TestCertificateMetrics(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		what          string
		names         []string
		signed        x509.SignatureAlgorithm
		unnamed, sha1 float64
	}{
		{what: "nothing", names: []string{"ext.agg.svc"}},
		{what: "no name", unnamed: 1},
		{what: "another name", names: []string{"another"}},
		{what: "signed with SHA-1", names: []string{"ext.agg.svc"}, signed: x509.ECDSAWithSHA1, sha1: 1},
	} {
		key := ca.newKey()
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber:       big.NewInt(2),
			Subject:            pkix.Name{CommonName: "ext.agg.svc"},
			NotAfter:           time.Now().Add(time.Hour),
			DNSNames:           c.names,
			ExtKeyUsage:        []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			KeyUsage:           x509.KeyUsageDigitalSignature,
			SignatureAlgorithm: c.signed,
		}, ca.cert, key.Public(), ca.key)
		if err != nil {
			t.Fatal(err)
		}
		e := startExtension(t, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, serveResourcesAndEcho)
		b := start(t, nil)
		b.register(e, ca.pem)
		w := b.send(eve, httptest.NewRequest("GET", thingPath, nil))
		if works := c.what == "nothing"; (w.Code == http.StatusTeapot) != works {
			t.Errorf("flaw %q: got status %d: %s, want the response of the server only without a flaw", c.what, w.Code, w.Body)
		}
		unnamed := sumMetric(t, b, "apiserver_kube_aggregator_x509_missing_san_total")
		sha1 := sumMetric(t, b, "apiserver_kube_aggregator_x509_insecure_sha1_total")
		if unnamed != c.unnamed || sha1 != c.sha1 {
			t.Errorf("%s: got %v without a name, %v signed with SHA-1: %s, want %v, %v",
				c.what, unnamed, sha1, w.Body, c.unnamed, c.sha1)
		}
		b.stop()
	}
}
