package certs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
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

// trustPools returns the CA certificates that a process trusts after reading its files now.
func trustPools(t *testing.T, layout certs.Layout) map[certs.CA]*x509.CertPool {
	t.Helper()
	pools := map[certs.CA]*x509.CertPool{}
	for name, file := range map[certs.CA]string{
		certs.ServingCA:    layout.TrustBundle("tokencleaner", certs.ServingCA),
		certs.ClientCA:     layout.TrustBundle("apiserver", certs.ClientCA),
		certs.EtcdCA:       layout.TrustBundle("apiserver", certs.EtcdCA),
		certs.NATSCA:       layout.TrustBundle("nats", certs.NATSCA),
		certs.FrontProxyCA: layout.TrustBundle("apiserver", certs.FrontProxyCA),
		certs.KubeletCA:    layout.TrustBundle("apiserver", certs.KubeletCA),
	} {
		bundle, err := tlsfiles.LoadBundle(file)
		if err != nil {
			t.Fatal(err)
		}
		pools[name] = bundle.Pool()
	}
	return pools
}

// tokenKey is created once, as it is slow and irrelevant here.
var tokenKey = sync.OnceValues(func() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
})

// newFolder returns options for a folder with a token key.
func newFolder(t *testing.T) certs.Options {
	t.Helper()
	options := certs.Options{Dir: t.TempDir()}
	key, err := tokenKey()
	if err == nil {
		l := certs.Layout{Dir: options.Dir}
		err = errors.Join(os.MkdirAll(l.Folder("apiserver"), 0o700), os.WriteFile(l.ServiceAccountKey(), key, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// TestRotationKeepsTrust checks that after each step, processes that last read their files in the
// previous step still trust each other.
func TestRotationKeepsTrust(t *testing.T) {
	options := newFolder(t)
	ensureFiles(t, options)
	layout := certs.Layout{Dir: options.Dir}
	formerCAs := map[certs.CA]*x509.Certificate{}
	for _, ca := range certs.CAs() {
		formerCAs[ca] = leafOf(t, layout.CA(ca))
	}
	anyUsage := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	previousPools := trustPools(t, layout) // trusted by processes that last read their files in the previous step
	for _, step := range certs.AllSteps() {
		for _, wrongStep := range certs.AllSteps() {
			if wrongStep == step {
				continue
			}
			if _, err := certs.Rotate(options, wrongStep); err == nil {
				t.Fatalf("Rotate(%s) when %s is next: error = nil, want one", wrongStep, step)
			}
		}
		if _, err := certs.Rotate(options, step); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if created := ensureFiles(t, options); len(created) != 0 {
			t.Errorf("after %s: Ensure created files %v, want none", step, created)
		}
		newPools := trustPools(t, layout)
		for ca, pair := range pairsOf(layout) {
			for reader, pools := range map[string]map[certs.CA]*x509.CertPool{"before": previousPools, "after": newPools} {
				if _, err := leafOf(t, pair).Verify(x509.VerifyOptions{Roots: pools[ca], KeyUsages: anyUsage}); err != nil {
					t.Errorf("%s is not trusted by a process that read its files %s step %s: %v",
						filepath.Base(pair.Cert), reader, step, err)
				}
			}
		}
		previousPools = newPools
	}
	for ca, former := range formerCAs {
		if leafOf(t, layout.CA(ca)).Equal(former) {
			t.Errorf("%s after the last step: got the former certificate, want a new one", ca)
		}
		formerPool := x509.NewCertPool()
		formerPool.AddCert(former)
		if pair, ok := pairsOf(layout)[ca]; ok {
			if _, err := leafOf(t, pair).Verify(x509.VerifyOptions{Roots: formerPool, KeyUsages: anyUsage}); err == nil {
				t.Errorf("%s after the last step: signed by the former %s, want the new one", pair.Cert, ca)
			}
		}
	}
	if _, err := certs.Rotate(options, "turn"); err == nil {
		t.Error(`Rotate("turn"), an unknown step: error = nil, want one`)
	}
	if _, err := certs.Rotate(options, certs.Prepare, "root"); err == nil {
		t.Error(`Rotate(Prepare, "root"), an unknown CA: error = nil, want one`)
	}
}

// pairsOf returns one certificate that each CA signed, with its key.
func pairsOf(layout certs.Layout) map[certs.CA]certs.Pair {
	return map[certs.CA]certs.Pair{
		certs.ServingCA:    layout.APIServer(),
		certs.ClientCA:     layout.Client("tokencleaner"),
		certs.EtcdCA:       layout.Etcd(),
		certs.NATSCA:       layout.NATSClient(),
		certs.FrontProxyCA: layout.FrontProxy(),
		certs.KubeletCA:    layout.KubeletClient(),
	}
}

// TestSingleCARotation checks that the rotation of one CA does not change the others.
func TestSingleCARotation(t *testing.T) {
	options := newFolder(t)
	ensureFiles(t, options)
	layout := certs.Layout{Dir: options.Dir}
	serving, etcd := leafOf(t, layout.CA(certs.ServingCA)), leafOf(t, layout.CA(certs.EtcdCA))
	for _, step := range certs.AllSteps() {
		if _, err := certs.Rotate(options, step, certs.EtcdCA); err != nil {
			t.Fatal(err)
		}
		// The other CAs are not prepared, so Switch of all CAs is out of order and changes none.
		if _, err := certs.Rotate(options, certs.Switch); err == nil {
			t.Fatalf("Rotate(switch) of all CAs after %s of one: error = nil, want one", step)
		}
	}
	if !leafOf(t, layout.CA(certs.ServingCA)).Equal(serving) {
		t.Error("rotation of the etcd CA: got another serving CA, want it unchanged")
	}
	if leafOf(t, layout.CA(certs.EtcdCA)).Equal(etcd) {
		t.Error("rotation of the etcd CA: got the former etcd CA, want another")
	}
}

// TestRenewReissuesLeafCertificates checks that Options.Renew replaces all certificates except
// those of the CAs.
func TestRenewReissuesLeafCertificates(t *testing.T) {
	options := newFolder(t)
	initial := ensureFiles(t, options)
	layout := certs.Layout{Dir: options.Dir}
	certificate, before := leafOf(t, layout.CA(certs.ClientCA)), leafOf(t, layout.Admin())
	options.Renew = true
	if created := ensureFiles(t, options); len(created) != len(initial)-len(certs.CAs()) {
		t.Errorf("renewal wrote %d files, want %d: all but those of the CAs", len(created), len(initial)-len(certs.CAs()))
	}
	if !leafOf(t, layout.CA(certs.ClientCA)).Equal(certificate) {
		t.Error("renewal: got another client CA, want it unchanged")
	}
	if leafOf(t, layout.Admin()).Equal(before) {
		t.Error("renewal: got the former certificate of the administrator, want another")
	}
}

// TestSecretsHoldOnlyNeededFiles checks that each Secret has the files of one program, and no key
// of a CA.
func TestSecretsHoldOnlyNeededFiles(t *testing.T) {
	options := newFolder(t)
	ensureFiles(t, options)
	data, err := certs.Secrets(options)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{}
	for doc := range strings.SplitSeq(string(data), "---\n") {
		var secret corev1.Secret
		if err := yaml.Unmarshal([]byte(doc), &secret); err != nil {
			t.Fatal(err)
		}
		for k := range secret.Data {
			if strings.HasSuffix(k, ".key") || strings.HasSuffix(k, "-ca.crt") {
				keys[secret.Name] = append(keys[secret.Name], k)
			}
		}
		slices.Sort(keys[secret.Name])
	}
	for name, want := range map[string][]string{
		"apiserver-certs": {"apiserver-etcd-client.key", "apiserver-kubelet-client.key", "apiserver-nats-client.key",
			"apiserver-proxy-client.key",
			"apiserver-webhook-client.key", "apiserver.key",
			"client-ca.crt", "etcd-ca.crt", "front-proxy-ca.crt", "kubelet-ca.crt", "nats-ca.crt", "sa.key", "serving-ca.crt"},
		"authn-webhook-certs": {"authn-webhook-client.key", "authn-webhook.key", "client-ca.crt", "serving-ca.crt"},
		"tokencleaner-certs":  {"client-ca.crt", "serving-ca.crt", "tokencleaner-client.key", "tokencleaner.key"},
		"etcd-certs":          {"etcd-ca.crt", "etcd.key"},
		"nats-certs":          {"nats-ca.crt", "nats.key"},
		"admin-certs":         nil,
	} {
		if !slices.Equal(keys[name], want) {
			t.Errorf("Secret %s: got files %v, want %v", name, keys[name], want)
		}
	}
}
