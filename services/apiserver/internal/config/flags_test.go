package config

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"binnacle/libs/options"
	"binnacle/libs/serving/tlsfiles"
)

// asProgram runs the command line up to the start of the server.
func asProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	serverOptions := NewOptions()
	code = options.Main(t.Context(), Name, Short, serverOptions, func(_ context.Context, log *slog.Logger) error {
		serverOptions.Compatibility.Warn(log)
		return nil
	}, args, &out, &errs)
	return code, out.String(), errs.String()
}

// certificate returns the certificate of a test server.
func certificate(t *testing.T) []byte {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return tlsfiles.EncodeCertificate(server.Certificate().Raw)
}

// privateKey returns a new key that can sign service account tokens.
func privateKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TestFlagsAndDefaultsEqualKubernetes checks that every flag of kube-apiserver is known and has the recorded
// default.
func TestFlagsAndDefaultsEqualKubernetes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "kube-apiserver-flags.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, help, _ := asProgram(t, "--help")
	// The help of a flag may have several lines.
	help = regexp.MustCompile(`\n {10,}`).ReplaceAllString(help, " ")
	known := map[string]string{}
	for _, line := range strings.Split(help, "\n") {
		if flagName := regexp.MustCompile(`^\s+(?:-\w, )?--([a-z0-9-]+)`).FindStringSubmatch(line); flagName != nil {
			known[flagName[1]] = ""
			if defaultValue := regexp.MustCompile(`\(default (.*)\)$`).FindStringSubmatch(strings.TrimSpace(line)); defaultValue != nil {
				known[flagName[1]] = strings.Trim(defaultValue[1], `"[]`)
			}
		}
	}
	seen := 0
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		seen++
		name, rest, _ := strings.Cut(line, " ")
		got, ok := known[name]
		if !ok {
			t.Errorf("--%s is missing in --help", name)
			continue
		}
		_, want, recorded := strings.Cut(rest, "default=")
		want = strings.Trim(want, `"[]`)
		if recorded && got != want {
			t.Errorf("--%s: got default %q, want %q as in Kubernetes", name, got, want)
		}
	}
	if seen < 150 {
		t.Fatalf("got %d flags, want at least 150", seen)
	}
}

// TestCommandLinesOfInstallersAreAccepted checks that the command lines that installers use for kube-apiserver
// are accepted.
func TestCommandLinesOfInstallersAreAccepted(t *testing.T) {
	t.Parallel()
	ca := certificate(t)
	key := privateKey(t)
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		content := ca
		if strings.HasPrefix(name, "sa") {
			content = key
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeadm := []string{
		"--advertise-address=192.168.1.10", "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--client-ca-file=" + file("ca.crt"),
		"--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
		"--etcd-cafile=" + file("etcd-ca.crt"), "--etcd-certfile=" + file("apiserver-etcd-client.crt"),
		"--etcd-keyfile=" + file("apiserver-etcd-client.key"), "--etcd-servers=https://127.0.0.1:2379",
		"--kubelet-client-certificate=" + file("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + file("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file=" + file("front-proxy-client.crt"), "--proxy-client-key-file=" + file("front-proxy-client.key"),
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-client-ca-file=" + file("front-proxy-ca.crt"),
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--secure-port=6443", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + file("sa.pub"), "--service-account-signing-key-file=" + file("sa.key"),
		"--service-cluster-ip-range=10.96.0.0/12", "--tls-cert-file=" + file("apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver.key"),
	}
	for name, args := range map[string][]string{
		"kubeadm": kubeadm,
		"kind":    append(slices.Clone(kubeadm), "--runtime-config="),
		"envtest": {
			"--advertise-address=127.0.0.1", "--allow-privileged=true",
			"--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir=" + dir, "--client-ca-file=" + file("client-ca.crt"),
			"--disable-admission-plugins=ServiceAccount", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=40000",
			"--service-account-issuer=https://127.0.0.1:40000/", "--service-account-key-file=" + file("sa-signer.crt"),
			"--service-account-signing-key-file=" + file("sa-signer.key"), "--service-cluster-ip-range=10.0.0.0/24",
		},
		"kubeadm with tuning flags": append(slices.Clone(kubeadm), "--watch-cache-sizes=pods#1000",
			"--delete-collection-workers=4", "--storage-backend=etcd3", "--emulated-version=kube=1.33",
			"--log-flush-frequency=1s", "--endpoint-reconciler-type=none", "--vmodule=a=4"),
	} {
		if code, _, errs := asProgram(t, args...); code != 0 {
			t.Errorf("%s: got exit code %d: %s, want 0", name, code, errs)
		}
	}
}

// TestFlagsWithoutEffectAreLogged checks that flags without an effect are accepted with a warning.
func TestFlagsWithoutEffectAreLogged(t *testing.T) {
	t.Parallel()
	code, _, errs := asProgram(t, "--watch-cache-sizes=pods#1", "--vmodule=a=1", "--log-text-split-stream")
	if code != 0 || strings.Count(errs, "has no effect") != 3 || !strings.Contains(errs, "flag=--watch-cache-sizes") {
		t.Errorf("got code %d: %s, want 0 and three warnings, one of them with %q", code, errs, "flag=--watch-cache-sizes")
	}
	_, _, errs = asProgram(t)
	if strings.Contains(errs, "has no effect") {
		t.Errorf("output without such flags = %s, want no warning", errs)
	}
}

// TestKubernetesCommandLineStarts checks that command lines of kube-apiserver 1.33 pass validation.
func TestKubernetesCommandLineStarts(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--apiserver-count=3"},
		{"--storage-backend="},
		{"--storage-backend=memory", "--data-dir="},
		{"--kubelet-read-only-port=10255"},
		{"--kubelet-port=10250"},
		{"--default-watch-cache-size=100"},
		{"--audit-webhook-batch-initial-backoff=5s"},
		{"--admission-control=AlwaysAdmit"},
		{"--enable-logs-handler=false"},
		{"--feature-gates=UnknownVersionInteroperabilityProxy=true"},
		{"--feature-gates=UnknownVersionInteroperabilityProxy=true,APIServerIdentity=false"},
		{"--feature-gates=AuthorizeNodeWithSelectors=false,AuthorizeWithSelectors=false"},
		{"--feature-gates=ExecProbeTimeout=false,TopologyManagerPolicyOptions=false"},
		{"--service-account-jwks-uri=https:///openid/v1/jwks"},
		{"--requestheader-username-headers=X-Remote-User"},
		{"--requestheader-allowed-names=front-proxy-client"},
		{"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"},
	} {
		if code, _, errs := asProgram(t, args...); code != 0 {
			t.Errorf("%v: got code %d: %s, want 0", args, code, errs)
		}
	}
}

// TestUnsupportedFlagsAreRejected checks that a flag whose effect is not implemented is an error.
func TestUnsupportedFlagsAreRejected(t *testing.T) {
	t.Parallel()
	selector := func(protocol string) string {
		path := filepath.Join(t.TempDir(), "egress.yaml")
		if err := os.WriteFile(path, fmt.Appendf(nil,
			"apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n  connection:\n    proxyProtocol: %s\n",
			protocol), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for arg, want := range map[string]string{
		"--storage-backend=etcd2":                                    "--storage-backend invalid, allowed values: etcd3, memory. If not specified, it will default to 'etcd3'",
		"--storage-backend=memory --etcd-servers=http://127.0.0.1":   "--etcd-servers cannot be used with --storage-backend=memory",
		"--storage-backend=memory --nats-servers=nats://127.0.0.1":   "--nats-servers cannot be used with --storage-backend=memory",
		"--storage-media-type=application/json":                      "",
		"--storage-media-type=application/yaml":                      `--storage-media-type "application/yaml" invalid`,
		"--etcd-servers-overrides=/events#http://127.0.0.1":          "",
		"--etcd-servers-overrides=events":                            "must be of format: group/resource#servers",
		"--delete-collection-workers=0":                              "",
		"--endpoint-reconciler-type=some":                            "must be lease, none or master-count",
		"--apiserver-count=0":                                        "--apiserver-count should be a positive number, but value '0' provided",
		"--feature-gates=AuthorizeWithSelectors=false":               "AuthorizeNodeWithSelectors feature requires AuthorizeWithSelectors feature to be enabled",
		"--etcd-healthcheck-timeout=0s --etcd-readycheck-timeout=0s": "",
		"--etcd-healthcheck-timeout=-1s":                             "must not be negative",
		"--egress-selector-config-file=/no/such":                     "egress-selector-config-file /no/such does not exist",
		"--egress-selector-config-file=" + selector("HTTPConnect"):   "transport must be set for HTTPConnect",
		"--egress-selector-config-file=" + selector("Direct"):        "",
	} {
		code, _, errs := asProgram(t, strings.Fields(arg)...)
		if (code == 0) != (want == "") || !strings.Contains(errs, want) {
			t.Errorf("%s: exits with %d, %s, want error %q", arg, code, errs, want)
		}
	}
}
