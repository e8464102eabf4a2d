package certs_test

import (
	"bytes"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"binnacle/deploy/certs"
	"binnacle/libs/serving/tlsfiles"
)

func ensure(t *testing.T, o certs.Options) []string {
	t.Helper()
	made, err := certs.Ensure(o)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func leaf(t *testing.T, p certs.Pair) *x509.Certificate {
	t.Helper()
	pair, err := tlsfiles.LoadPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Certificate().Leaf
}

func TestCertificatesAreWhatTheyAreFor(t *testing.T) {
	o := certs.Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: []string{"api.example.org"}, Addresses: []net.IP{net.IPv4(192, 0, 2, 1)}}
	ensure(t, o)
	l := certs.Layout{Dir: o.Dir}
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	tests := []struct {
		pair  certs.Pair
		ca    certs.Pair
		cn    string
		group string
		usage x509.ExtKeyUsage
		names []string
	}{
		{l.APIServer(), l.CA(), "kube-apiserver", "", server, []string{"localhost", "127.0.0.1", "::1", "10.0.0.1", "192.0.2.1",
			"api.example.org", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
		{l.Admin(), l.CA(), "binnacle-admin", "system:masters", client, nil},
		{l.WebhookClient(), l.CA(), "system:binnacle:apiserver", "system:binnacle", client, nil},
		{l.FrontProxy(), l.FrontProxyCA(), "front-proxy-client", "", client, nil},
		{l.Serving("authn-webhook"), l.CA(), "authn-webhook", "", server, []string{"localhost", "127.0.0.1", "authn-webhook"}},
		{l.Client("tokencleaner"), l.CA(), "system:binnacle:tokencleaner", "system:binnacle", client, nil},
	}
	for _, tt := range tests {
		t.Run(tt.cn, func(t *testing.T) {
			c := leaf(t, tt.pair)
			roots := x509.NewCertPool()
			roots.AddCert(leaf(t, tt.ca))
			if _, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{tt.usage}}); err != nil {
				t.Error(err)
			}
			if c.Subject.CommonName != tt.cn || tt.group != "" && !slices.Equal(c.Subject.Organization, []string{tt.group}) || tt.group == "" && len(c.Subject.Organization) > 0 {
				t.Errorf("subject %v", c.Subject)
			}
			for _, name := range tt.names {
				if err := c.VerifyHostname(name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, s := range certs.Services() {
		leaf(t, l.Serving(s))
		leaf(t, l.Client(s))
	}
	for _, key := range []string{l.ServiceAccountKey(), l.CA().Key, l.Admin().Key} {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, info.Mode(), err)
		}
	}
}

func TestEnsureMakesOnlyWhatDoesNotFit(t *testing.T) {
	remove := func(paths ...string) func(*testing.T, *certs.Options) {
		return func(t *testing.T, o *certs.Options) {
			for _, p := range paths {
				if err := os.Remove(filepath.Join(o.Dir, p)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	all := func(dir string, t *testing.T) int {
		made := ensure(t, certs.Options{Dir: dir})
		return len(made)
	}(t.TempDir(), t)
	tests := []struct {
		name   string
		change func(*testing.T, *certs.Options)
		want   []string // nil: only the number counts
		number int
	}{
		{"nothing changed", func(*testing.T, *certs.Options) {}, []string{}, 0},
		{"another name", func(_ *testing.T, o *certs.Options) { o.Names = []string{"other"} }, []string{"apiserver.crt"}, 1},
		{"key lost", remove("admin.key"), []string{"admin.crt"}, 1},
		{"certificate damaged", func(t *testing.T, o *certs.Options) {
			if err := os.WriteFile(filepath.Join(o.Dir, "tokencleaner.crt"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"tokencleaner.crt"}, 1},
		{"front-proxy CA lost", remove("front-proxy-ca.crt"), []string{"front-proxy-ca.crt", "front-proxy-client.crt"}, 2},
		{"CA lost", remove("ca.key"), nil, all - 3}, // both of the front proxy and the token key stay
		{"token key lost", remove("sa.key"), []string{"sa.key"}, 1},
		{"public token key lost", remove("sa.pub"), []string{}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := certs.Options{Dir: t.TempDir()}
			ensure(t, o)
			tt.change(t, &o)
			made := ensure(t, o)
			for i, p := range made {
				made[i] = filepath.Base(p)
			}
			if len(made) != tt.number || (tt.want != nil && !slices.Equal(made, tt.want)) {
				t.Errorf("made %v, want %d: %v", made, tt.number, tt.want)
			}
			if again := ensure(t, o); len(again) != 0 {
				t.Errorf("made %v the next time", again)
			}
			l := certs.Layout{Dir: o.Dir}
			if _, err := os.Stat(l.ServiceAccountPublicKey()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADamagedTokenKeyIsNotReplaced(t *testing.T) {
	o := certs.Options{Dir: t.TempDir()}
	ensure(t, o)
	path := certs.Layout{Dir: o.Dir}.ServiceAccountKey()
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.Ensure(o); err == nil {
		t.Error("no error")
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, []byte("damaged")) {
		t.Errorf("%s, %v", data, err)
	}
}
