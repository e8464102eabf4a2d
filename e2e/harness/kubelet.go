package harness

import (
	"fmt"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet is a minimal kubelet. The containers of its pods are local processes, which run as long
// as a command does. It serves clients with a certificate of the server's CA.
type Kubelet struct {
	*Process
	Address string
	Port    int
}

// StartKubelet starts a kubelet with a serving certificate of pki that trusts clients of pki.
func StartKubelet(t testing.TB, pki *PKI) *Kubelet {
	t.Helper()
	serving := pki.Serving("kubelet")
	kubelet := &Kubelet{Process: NewProcess(t, "kubelet", Binary(t, KubeletServer)), Address: "127.0.0.1", Port: FreePort(t)}
	at := net.JoinHostPort(kubelet.Address, fmt.Sprint(kubelet.Port))
	kubelet.Start("--listen="+at, "--cert="+serving.CertFile, "--key="+serving.KeyFile, "--client-ca="+pki.CA)
	kubelet.waitUntil("listening", func() error {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return kubelet
}

// Node returns the Node object of the kubelet.
func (k *Kubelet) Node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.Address}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(k.Port)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}
