package harness

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// streamTimeout bounds the wait for a client to open its streams.
const streamTimeout = 20 * time.Second

// Kubelet is a small kubelet: the containers of its pods are processes of this
// machine, which run as long as a command does. It serves those who show a
// certificate of the server's authority.
type Kubelet struct {
	Address string
	Port    int
}

// StartKubelet starts a kubelet that trusts, and has its certificate from, a
// server's authority.
func StartKubelet(t testing.TB, pki *PKI) *Kubelet {
	t.Helper()
	serving := pki.Serving("kubelet")
	pair, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(pki.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/", runProcess)
	mux.HandleFunc("/attach/", runProcess)
	mux.HandleFunc("/portForward/", forwardPorts)
	mux.HandleFunc("/containerLogs/", func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "line %d of %s\n", i, r.URL.Path)
		}
		if tail := r.URL.Query().Get("tailLines"); tail != "" {
			fmt.Fprintf(w, "tail %s\n", tail)
		}
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "kubelet is ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: streamTimeout}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return &Kubelet{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
}

// Node is the node that the kubelet is on.
func (k *Kubelet) Node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.Address}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(k.Port)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// accept upgrades a request and hands over the streams that the client opens.
func accept(w http.ResponseWriter, r *http.Request, protocols ...string) (httpstream.Connection, <-chan httpstream.Stream) {
	if _, err := httpstream.Handshake(r, w, protocols); err != nil {
		return nil, nil
	}
	streams := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replySent <-chan struct{}) error {
		go func() {
			<-replySent
			streams <- s
		}()
		return nil
	})
	return conn, streams
}

// runProcess runs a command; attaching runs cat.
func runProcess(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	conn, streams := accept(w, r, remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name)
	if conn == nil {
		return
	}
	defer conn.Close()
	want := 1
	for _, name := range []string{corev1.ExecStdinParam, corev1.ExecStdoutParam, corev1.ExecStderrParam, corev1.ExecTTYParam} {
		if q.Get(name) == "1" {
			want++
		}
	}
	byType := map[string]httpstream.Stream{}
	for len(byType) < want {
		select {
		case s := <-streams:
			byType[s.Headers().Get(corev1.StreamType)] = s
		case <-time.After(streamTimeout):
			return
		}
	}
	command := q["command"]
	if len(command) == 0 {
		command = []string{"cat"}
	}
	cmd := exec.CommandContext(r.Context(), command[0], command[1:]...)
	if s := byType[corev1.StreamTypeStdin]; s != nil {
		// A process that does not read to the end must not keep us waiting.
		in, err := cmd.StdinPipe()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(in, s)
			_ = in.Close()
		}()
	}
	if s := byType[corev1.StreamTypeStdout]; s != nil {
		cmd.Stdout = s
	}
	if s := byType[corev1.StreamTypeStderr]; s != nil {
		cmd.Stderr = s
	}
	_ = json.NewEncoder(byType[corev1.StreamTypeError]).Encode(statusOf(cmd.Run()))
	for _, s := range byType {
		_ = s.Close()
	}
	select {
	case <-conn.CloseChan(): // the other side has read it all
	case <-time.After(streamTimeout):
	}
}

func statusOf(err error) *metav1.Status {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return &metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitCode())}}},
		}
	default:
		return &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
}

// forwardPorts connects to ports of this machine.
func forwardPorts(w http.ResponseWriter, r *http.Request) {
	conn, streams := accept(w, r, portforward.PortForwardV1Name)
	if conn == nil {
		return
	}
	defer conn.Close()
	for {
		select {
		case s := <-streams:
			if s.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
				_ = s.Close()
				continue
			}
			go func() {
				defer s.Close()
				target, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", s.Headers().Get(corev1.PortHeader)))
				if err != nil {
					return
				}
				defer target.Close()
				go func() { _, _ = io.Copy(target, s) }()
				_, _ = io.Copy(s, target)
			}()
		case <-conn.CloseChan():
			return
		}
	}
}
