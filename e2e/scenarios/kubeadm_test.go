package scenarios

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"binnacle/e2e/harness"
)

// TestKubeadmStaticPod starts the server with the command line and the files of kubeadm. Only
// paths, ports and the etcd address differ.
func TestKubeadmStaticPod(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(harness.Project(t), "deploy", "examples", "kubeadm", "kube-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatal(err)
	}
	command := pod.Spec.Containers[0].Command
	if command[0] != "kube-apiserver" || !strings.Contains(pod.Spec.Containers[0].Image, "/kube-apiserver:") {
		t.Fatalf("%s: got command %s, want kube-apiserver in an image of it", pod.Spec.Containers[0].Image, command[0])
	}
	dir := t.TempDir()
	pki := createKubeadmFiles(t, dir)
	port := harness.FreePort(t)
	etcd := harness.StartEtcd(t)
	var args []string
	for _, a := range command[1:] {
		name, value, _ := strings.Cut(a, "=")
		switch {
		case name == "--secure-port":
			value = fmt.Sprint(port)
		case name == "--etcd-servers": // etcd of the harness, without TLS
			value = etcd.Endpoint
		case strings.HasPrefix(name, "--etcd-"):
			continue
		}
		args = append(args, name+"="+strings.Replace(value, "/etc/kubernetes/pki", dir, 1))
	}
	process := harness.NewProcess(t, "kube-apiserver", harness.Binary(t, harness.APIServer))
	process.Start(append(args, "--bind-address=127.0.0.1")...)
	admin := pki.Client("kubernetes-admin", harness.SystemMasters)
	client := harness.ClientFor(t, &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", port),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: pki.CA, CertData: admin.Cert, KeyData: admin.Key,
		},
	})
	harness.Eventually(t, tokenSettle, "the server to be ready", func() error {
		if !process.Running() {
			t.Fatal("the server has exited")
		}
		return client.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	service, err := client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("service kubernetes: got %q, %v, want 10.96.0.1", service.Spec.ClusterIP, err)
	}
	if !strings.Contains(process.Log(), "kubelets are not verified") {
		t.Error("log: got no warning about unverified kubelets, want one")
	}
}

// createKubeadmFiles creates files with kubeadm's names, signed by one CA.
func createKubeadmFiles(t *testing.T, dir string) *harness.PKI {
	t.Helper()
	pki := harness.NewPKI(t)
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := os.ReadFile(pki.CA)
	if err != nil {
		t.Fatal(err)
	}
	write("ca.crt", ca)
	front := harness.NewPKI(t)
	if ca, err = os.ReadFile(front.CA); err != nil {
		t.Fatal(err)
	}
	write("front-proxy-ca.crt", ca)
	for name, pair := range map[string]harness.Pair{
		"apiserver":                pki.Serving("kube-apiserver"),
		"apiserver-kubelet-client": pki.Client("kube-apiserver-kubelet-client"),
		"front-proxy-client":       front.Client("front-proxy-client"),
	} {
		write(name+".crt", pair.Cert)
		write(name+".key", pair.Key)
	}
	signer := pki.Signer("sa")
	write("sa.key", signer.Key)
	block, _ := pem.Decode(signer.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(cert.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	write("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return pki
}
