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

func ensureFiles(t *testing.T, options certs.Options) []string {
	t.Helper()
	created, err := certs.Ensure(options)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func leafOf(t *testing.T, files certs.Pair) *x509.Certificate {
	t.Helper()
	pair, err := tlsfiles.LoadPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Certificate().Leaf
}

// TestCertificatesHaveOnePurpose checks the subject, usage, names and issuer of every certificate.
func TestCertificatesHaveOnePurpose(t *testing.T) {
	options := certs.Options{
		Dir:       filepath.Join(t.TempDir(), "pki"),
		Names:     []string{"api.example.org"},
		Addresses: []net.IP{net.IPv4(192, 0, 2, 1)},
	}
	ensureFiles(t, options)
	layout := certs.Layout{Dir: options.Dir}
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	tests := []struct {
		pair       certs.Pair
		ca         certs.CA
		commonName string
		group      string
		usage      x509.ExtKeyUsage
		names      []string
	}{
		{
			pair:       layout.APIServer(),
			ca:         certs.ServingCA,
			commonName: "kube-apiserver",
			group:      "",
			usage:      server,
			names: []string{"localhost", "127.0.0.1", "::1", "10.0.0.1", "192.0.2.1",
				"api.example.org", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local"},
		},
		{pair: layout.Admin(), ca: certs.ClientCA, commonName: "binnacle-admin", group: "system:masters", usage: client, names: nil},
		{
			pair:       layout.WebhookClient(),
			ca:         certs.ClientCA,
			commonName: "system:binnacle:apiserver",
			group:      "system:binnacle",
			usage:      client,
			names:      nil,
		},
		{pair: layout.FrontProxy(), ca: certs.FrontProxyCA, commonName: "front-proxy-client", group: "", usage: client, names: nil},
		{pair: layout.ProxyClient(), ca: certs.FrontProxyCA, commonName: "front-proxy-client", group: "", usage: client, names: nil},
		{pair: layout.KubeletClient(), ca: certs.KubeletCA, commonName: "kube-apiserver-kubelet-client", group: "", usage: client, names: nil},
		{
			pair:       layout.Monitoring(),
			ca:         certs.ClientCA,
			commonName: "binnacle-monitoring",
			group:      "system:monitoring",
			usage:      client,
			names:      nil,
		},
		{
			pair:       layout.ControllerManager(),
			ca:         certs.ClientCA,
			commonName: "system:kube-controller-manager",
			group:      "",
			usage:      client,
			names:      nil,
		},
		{pair: layout.Scheduler(), ca: certs.ClientCA, commonName: "system:kube-scheduler", group: "", usage: client, names: nil},
		{pair: layout.EtcdClient(), ca: certs.EtcdCA, commonName: "apiserver", group: "", usage: client, names: nil},
		{pair: layout.NATSClient(), ca: certs.NATSCA, commonName: "apiserver", group: "", usage: client, names: nil},
		{
			pair:       layout.Etcd(),
			ca:         certs.EtcdCA,
			commonName: "etcd",
			group:      "",
			usage:      server,
			names:      []string{"127.0.0.1", "etcd-0", "etcd-2.etcd.binnacle.svc"},
		},
		{
			pair:       layout.NATS(),
			ca:         certs.NATSCA,
			commonName: "nats",
			group:      "",
			usage:      client,
			names:      []string{"nats", "nats-0", "nats-2.nats.binnacle.svc"},
		},
		{
			pair:       layout.Serving("authn-webhook"),
			ca:         certs.ServingCA,
			commonName: "authn-webhook",
			group:      "",
			usage:      server,
			names:      []string{"localhost", "127.0.0.1", "authn-webhook"},
		},
		{
			pair:       layout.Client("tokencleaner"),
			ca:         certs.ClientCA,
			commonName: "system:binnacle:tokencleaner",
			group:      "system:binnacle",
			usage:      client,
			names:      nil,
		},
	}
	for _, tt := range tests {
		t.Run(filepath.Base(tt.pair.Cert), func(t *testing.T) {
			certificate := leafOf(t, tt.pair)
			for _, ca := range certs.CAs() {
				roots := x509.NewCertPool()
				roots.AddCert(leafOf(t, layout.CA(ca)))
				if _, err := certificate.Verify(x509.VerifyOptions{
					Roots:     roots,
					KeyUsages: []x509.ExtKeyUsage{tt.usage},
				}); (err == nil) != (ca == tt.ca) {
					t.Errorf("verification by %s: got %v, want success: %t", ca, err, ca == tt.ca)
				}
			}
			if got := certificate.Subject.CommonName; got != tt.commonName {
				t.Errorf("got common name %q, want %q", got, tt.commonName)
			}
			var groups []string
			if tt.group != "" {
				groups = []string{tt.group}
			}
			if got := certificate.Subject.Organization; !slices.Equal(got, groups) {
				t.Errorf("got organizations %q, want %q", got, groups)
			}
			for _, name := range tt.names {
				if err := certificate.VerifyHostname(name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, s := range certs.Services() {
		leafOf(t, layout.Serving(s))
		leafOf(t, layout.Client(s))
	}
}

// TestFoldersHoldOnlyNeededFiles lists every file. Each key is in the folder of the program that
// uses it, and keys of CAs are in the folder of no program.
func TestFoldersHoldOnlyNeededFiles(t *testing.T) {
	options := certs.Options{Dir: filepath.Join(t.TempDir(), "pki")}
	ensureFiles(t, options)
	want := map[string][]string{
		"ca": {"client-ca.crt", "client-ca.key", "etcd-ca.crt", "etcd-ca.key", "front-proxy-ca.crt", "front-proxy-ca.key",
			"kubelet-ca.crt", "kubelet-ca.key", "nats-ca.crt", "nats-ca.key", "serving-ca.crt", "serving-ca.key"},
		"apiserver": {"apiserver-etcd-client.crt", "apiserver-etcd-client.key", "apiserver-kubelet-client.crt",
			"apiserver-kubelet-client.key",
			"apiserver-nats-client.crt", "apiserver-nats-client.key", "apiserver-proxy-client.crt", "apiserver-proxy-client.key",
			"apiserver-webhook-client.crt", "apiserver-webhook-client.key", "apiserver.crt", "apiserver.key",
			"client-ca.crt", "etcd-ca.crt", "front-proxy-ca.crt", "kubelet-ca.crt", "nats-ca.crt", "sa.key", "serving-ca.crt"},
		"authn-webhook": {"authn-webhook-client.crt", "authn-webhook-client.key", "authn-webhook.crt",
			"authn-webhook.key", "client-ca.crt", "sa.pub", "serving-ca.crt"},
		"authz-webhook": {"authz-webhook-client.crt", "authz-webhook-client.key", "authz-webhook.crt",
			"authz-webhook.key", "client-ca.crt", "serving-ca.crt"},
		"tokencleaner": {"client-ca.crt", "serving-ca.crt", "tokencleaner-client.crt", "tokencleaner-client.key",
			"tokencleaner.crt", "tokencleaner.key"},
		"bootstrapsigner": {"bootstrapsigner-client.crt", "bootstrapsigner-client.key", "bootstrapsigner.crt",
			"bootstrapsigner.key", "client-ca.crt", "serving-ca.crt"},
		"controllers": {"client-ca.crt", "controllers-client.crt", "controllers-client.key", "controllers.crt",
			"controllers.key", "serving-ca.crt"},
		"console": {"client-ca.crt", "console-client.crt", "console-client.key", "console.crt", "console.key",
			"serving-ca.crt"},
		"etcd":        {"etcd-ca.crt", "etcd.crt", "etcd.key"},
		"nats":        {"nats-ca.crt", "nats.crt", "nats.key"},
		"balancer":    {"serving-ca.crt"},
		"admin":       {"admin.crt", "admin.key", "serving-ca.crt"},
		"monitoring":  {"monitoring.crt", "monitoring.key", "serving-ca.crt"},
		"front-proxy": {"front-proxy-client.crt", "front-proxy-client.key", "serving-ca.crt"},

		"kube-controller-manager": {"kube-controller-manager.crt", "kube-controller-manager.key", "serving-ca.crt"},
		"kube-scheduler":          {"kube-scheduler.crt", "kube-scheduler.key", "serving-ca.crt"},
	}
	folders, err := os.ReadDir(options.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		files, err := os.ReadDir(filepath.Join(options.Dir, folder.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
			info, err := f.Info()
			if private := filepath.Ext(f.Name()) == ".key"; err != nil || private && info.Mode().Perm() != 0o600 {
				t.Errorf("%s: got mode %v, %v; want mode 0600 for keys", f.Name(), info.Mode(), err)
			}
		}
		if !slices.Equal(names, want[folder.Name()]) {
			t.Errorf("%s: got files %q, want %q", folder.Name(), names, want[folder.Name()])
		}
	}
	if len(folders) != len(want) {
		t.Errorf("got %d folders, want %d", len(folders), len(want))
	}
	if got, want := len(certs.Programs()), len(want)-1; got != want { // ca belongs to no program
		t.Errorf("got %d programs, want %d", got, want)
	}
}

// TestEnsureReplacesOnlyUnusableFiles checks which files are written again after each kind of
// damage.
func TestEnsureReplacesOnlyUnusableFiles(t *testing.T) {
	remove := func(paths ...string) func(*testing.T, *certs.Options) {
		return func(t *testing.T, options *certs.Options) {
			for _, p := range paths {
				if err := os.Remove(filepath.Join(options.Dir, p)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	replaceCA := func(change func(*testing.T, *certs.Options)) func(*testing.T, *certs.Options) {
		return func(t *testing.T, options *certs.Options) {
			change(t, options)
			options.NewCA = true
		}
	}
	leafAndCAFiles := func(dir string, t *testing.T) int {
		created := ensureFiles(t, certs.Options{Dir: dir})
		return len(created) - 1 // without the token key
	}(t.TempDir(), t)
	tests := []struct {
		name   string
		change func(*testing.T, *certs.Options)
		want   []string // nil: only the number matters
		number int
	}{
		{name: "nothing changed", change: func(*testing.T, *certs.Options) {}, want: []string{}, number: 0},
		{
			name:   "another name",
			change: func(_ *testing.T, options *certs.Options) { options.Names = []string{"other"} },
			want:   []string{"apiserver.crt"},
			number: 1,
		},
		{name: "key lost", change: remove("admin/admin.key"), want: []string{"admin.crt"}, number: 1},
		{name: "certificate damaged", change: func(t *testing.T, options *certs.Options) {
			if err := os.WriteFile(filepath.Join(options.Dir, "tokencleaner", "tokencleaner.crt"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"tokencleaner.crt"}, number: 1},
		{
			name:   "front-proxy CA replaced",
			change: replaceCA(remove("ca/front-proxy-ca.crt")),
			want:   []string{"front-proxy-ca.crt", "apiserver-proxy-client.crt", "front-proxy-client.crt"},
			number: 3,
		},
		{
			name:   "etcd CA replaced",
			change: replaceCA(remove("ca/etcd-ca.key")),
			want:   []string{"etcd-ca.crt", "apiserver-etcd-client.crt", "etcd.crt"},
			number: 3,
		},
		{
			name: "all CAs replaced",
			change: replaceCA(remove("ca/client-ca.key", "ca/serving-ca.key", "ca/etcd-ca.key", "ca/nats-ca.key",
				"ca/front-proxy-ca.key", "ca/kubelet-ca.key")),
			want:   nil,
			number: leafAndCAFiles,
		},
		{name: "token key lost", change: remove("apiserver/sa.key"), want: []string{"sa.key"}, number: 1},
		{name: "public token key lost", change: remove("authn-webhook/sa.pub"), want: []string{}, number: 0},
		{name: "trust bundle lost", change: remove("etcd/etcd-ca.crt"), want: []string{}, number: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options := newFolder(t)
			ensureFiles(t, options)
			tt.change(t, &options)
			created := ensureFiles(t, options)
			for i, p := range created {
				created[i] = filepath.Base(p)
			}
			if len(created) != tt.number || (tt.want != nil && !slices.Equal(created, tt.want)) {
				t.Errorf("got files %v, want %d: %v", created, tt.number, tt.want)
			}
			if again := ensureFiles(t, options); len(again) != 0 {
				t.Errorf("next run created %v, want no files", again)
			}
			l := certs.Layout{Dir: options.Dir}
			for _, f := range []string{l.ServiceAccountPublicKey(), l.TrustBundle("etcd", certs.EtcdCA)} {
				if _, err := os.Stat(f); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestRenewalKeepsNames renews the API server's certificate without the names and addresses that it
// was created with.
func TestRenewalKeepsNames(t *testing.T) {
	dir := t.TempDir()
	ensureFiles(t, certs.Options{Dir: dir, Names: []string{"api.example.org"}, Addresses: []net.IP{net.IPv4(192, 0, 2, 1)}})
	original := leafOf(t, certs.Layout{Dir: dir}.APIServer())
	ensureFiles(t, certs.Options{Dir: dir, Renew: true})
	renewed := leafOf(t, certs.Layout{Dir: dir}.APIServer())
	if renewed.Equal(original) || !slices.Equal(renewed.DNSNames, original.DNSNames) ||
		!slices.EqualFunc(renewed.IPAddresses, original.IPAddresses, net.IP.Equal) {
		t.Errorf("got a certificate with %v %v, want a new one with %v %v", renewed.DNSNames, renewed.IPAddresses,
			original.DNSNames, original.IPAddresses)
	}
	for _, host := range []string{"api.example.org", "192.0.2.1"} {
		if err := renewed.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedTokenKeyIsNotReplaced checks that Ensure fails instead of replacing a key that it
// cannot read.
func TestDamagedTokenKeyIsNotReplaced(t *testing.T) {
	options := certs.Options{Dir: t.TempDir()}
	ensureFiles(t, options)
	path := certs.Layout{Dir: options.Dir}.ServiceAccountKey()
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.Ensure(options); err == nil {
		t.Error("Ensure() with a damaged token key = nil, want an error")
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, []byte("damaged")) {
		t.Errorf("got key %q, %v; want it unchanged", data, err)
	}
}
