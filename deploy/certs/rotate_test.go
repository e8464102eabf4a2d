package certs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"binnacle/deploy/certs"
	"binnacle/libs/serving/tlsfiles"
)

// trust is what a process that read the CA at some step believes.
func trust(t *testing.T, l certs.Layout) *x509.CertPool {
	t.Helper()
	b, err := tlsfiles.LoadBundle(l.CA().Cert)
	if err != nil {
		t.Fatal(err)
	}
	return b.Pool()
}

// tokenKey is made once: it takes long, and no test here looks at it.
var tokenKey = sync.OnceValues(func() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
})

// folder has a token key already.
func folder(t *testing.T) certs.Options {
	t.Helper()
	o := certs.Options{Dir: t.TempDir()}
	key, err := tokenKey()
	if err == nil {
		err = os.WriteFile(certs.Layout{Dir: o.Dir}.ServiceAccountKey(), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestARotationNeverMeetsDistrust(t *testing.T) {
	o := folder(t)
	ensure(t, o)
	l := certs.Layout{Dir: o.Dir}
	first := leaf(t, l.CA())
	believed := trust(t, l) // by those who have not read since the step before
	for i, step := range certs.Steps() {
		for j, other := range certs.Steps() {
			if j != i {
				if _, err := certs.Rotate(o, other); err == nil {
					t.Fatalf("%s instead of %s", other, step)
				}
			}
		}
		if _, err := certs.Rotate(o, step); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if made := ensure(t, o); len(made) != 0 {
			t.Errorf("after %s, made %v", step, made)
		}
		for _, pair := range []certs.Pair{l.APIServer(), l.Client("tokencleaner"), l.Etcd()} {
			for who, roots := range map[string]*x509.CertPool{"before": believed, "after": trust(t, l)} {
				if _, err := leaf(t, pair).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
					t.Errorf("%s: %s is not believed by those who read %s: %v", step, filepath.Base(pair.Cert), who, err)
				}
			}
		}
		believed = trust(t, l)
	}
	if leaf(t, l.CA()).Equal(first) {
		t.Error("the CA is the former one")
	}
	if _, err := leaf(t, l.APIServer()).Verify(x509.VerifyOptions{Roots: trust(t, l)}); err != nil {
		t.Error(err)
	}
	if _, err := certs.Rotate(o, "turn"); err == nil {
		t.Error("an unknown step is taken")
	}
}

func TestRenewMakesAllButTheCAs(t *testing.T) {
	o := folder(t)
	all := ensure(t, o)
	l := certs.Layout{Dir: o.Dir}
	ca, before := leaf(t, l.CA()), leaf(t, l.Admin())
	o.Renew = true
	if made := ensure(t, o); len(made) != len(all)-2 { // the CAs
		t.Errorf("made %d of %d", len(made), len(all))
	}
	if !leaf(t, l.CA()).Equal(ca) || leaf(t, l.Admin()).Equal(before) {
		t.Error("not what was to be renewed")
	}
}

func TestSecretsHoldWhatIsNeededAlone(t *testing.T) {
	o := folder(t)
	ensure(t, o)
	text, err := certs.Secrets(certs.Layout{Dir: o.Dir})
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{}
	for doc := range strings.SplitSeq(string(text), "---\n") {
		var s corev1.Secret
		if err := yaml.Unmarshal([]byte(doc), &s); err != nil {
			t.Fatal(err)
		}
		for k := range s.Data {
			if strings.HasSuffix(k, ".key") {
				keys[s.Name] = append(keys[s.Name], k)
			}
		}
		slices.Sort(keys[s.Name])
	}
	for name, want := range map[string][]string{
		"apiserver-certs":     {"apiserver-etcd-client.key", "apiserver-nats-client.key", "apiserver-webhook-client.key", "apiserver.key", "sa.key"},
		"authn-webhook-certs": {"authn-webhook-client.key", "authn-webhook.key"},
		"tokencleaner-certs":  {"tokencleaner-client.key", "tokencleaner.key"},
		"etcd-certs":          {"etcd.key"},
	} {
		if !slices.Equal(keys[name], want) {
			t.Errorf("%s: %v", name, keys[name])
		}
	}
}
