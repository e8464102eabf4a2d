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

// unavailable is what the gauge of an APIService shows; -1 when it has none.
func unavailable(t *testing.T, b *bench, name string) float64 {
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

// TestMetricsOfServers: who answers is shown once it is known, and as long as there is an APIService.
func TestMetricsOfServers(t *testing.T) {
	ca := newAuthority(t)
	e := extend(t, ca.issue("ext.agg.svc", x509.ExtKeyUsageServerAuth), http.NotFound)
	asked, goOn := make(chan bool, 8), make(chan bool)
	b := start(t, func(_ *bench, c *aggregation.Config) {
		find := c.Service
		c.Service = func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			select {
			case asked <- true:
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
	<-asked
	b.rounds()
	b.rounds() // what the first saw is shown
	if own, other := unavailable(t, b, local.Name), unavailable(t, b, name); own != 0 || other != -1 {
		t.Errorf("before it is known: %v of this server, %v of the other one", own, other)
	}
	close(goOn)
	b.eventually("away", func() bool { return unavailable(t, b, name) == 1 })
	e.does(plain)
	b.eventually("there", func() bool { return unavailable(t, b, name) == 0 })
	b.board.put(name, nil)
	b.eventually("forgotten", func() bool { return unavailable(t, b, name) == -1 })
	if own := unavailable(t, b, local.Name); own != 0 {
		t.Errorf("of this server: %v", own)
	}
}

// TestMetricsOfCertificates: what is wrong with those of servers is counted by what it is.
func TestMetricsOfCertificates(t *testing.T) {
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
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "ext.agg.svc"}, NotAfter: time.Now().Add(time.Hour), DNSNames: c.names,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature, SignatureAlgorithm: c.signed,
		}, ca.cert, key.Public(), ca.key)
		if err != nil {
			t.Fatal(err)
		}
		e := extend(t, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, things)
		b := start(t, nil)
		b.register(e, ca.pem)
		w := b.ask(eve, httptest.NewRequest("GET", thing, nil))
		if works := c.what == "nothing"; (w.Code == http.StatusTeapot) != works {
			t.Errorf("%s: got %d %s", c.what, w.Code, w.Body)
		}
		unnamed, sha1 := metrics(t, b, "apiserver_kube_aggregator_x509_missing_san_total"), metrics(t, b, "apiserver_kube_aggregator_x509_insecure_sha1_total")
		if unnamed != c.unnamed || sha1 != c.sha1 {
			t.Errorf("%s: %v without a name, %v signed with SHA-1: %s", c.what, unnamed, sha1, w.Body)
		}
		b.stop()
	}
}
