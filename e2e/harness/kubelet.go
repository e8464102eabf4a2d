package harness

import (
	"fmt"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet is a small kubelet: the containers of its pods are processes of this
// machine, which run as long as a command does. It serves those who show a
// certificate of the server's authority.
type Kubelet struct {
	*Process
	Address string
	Port    int
}

// StartKubelet starts a kubelet that trusts, and has its certificate from, a
// server's authority.
func StartKubelet(t testing.TB, pki *PKI) *Kubelet {
	t.Helper()
	serving := pki.Serving("kubelet")
	k := &Kubelet{Process: NewProcess(t, "kubelet", Binary(t, KubeletServer)), Address: "127.0.0.1", Port: FreePort(t)}
	at := net.JoinHostPort(k.Address, fmt.Sprint(k.Port))
	k.Start("--listen="+at, "--cert="+serving.CertFile, "--key="+serving.KeyFile, "--client-ca="+pki.CA)
	k.waitUntil("listening", func() error {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return k
}

// Node is the node that the kubelet is on.
func (k *Kubelet) Node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.Address}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(k.Port)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}
