// Command kubelet serves pods whose containers are processes of this machine while a command runs,
// and whose ports are those of this machine. It is for tests.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy/kubelettest"
)

func main() {
	var (
		listen = flag.String("listen", "127.0.0.1:10250", "address to serve on")
		cert   = flag.String("cert", "", "file with the serving certificate")
		key    = flag.String("key", "", "file with its key")
		ca     = flag.String("client-ca", "", "file with the authority of the clients that are served")
	)
	flag.Parse()
	if err := serve(*listen, *cert, *key, *ca); err != nil {
		log.Fatal(err)
	}
}

// serve serves the kubelet API with client certificates.
func serve(listen, cert, key, ca string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate", ca)
	}
	server := &http.Server{
		Addr:              listen,
		Handler:           kubelettest.Kubelet{Run: run, Forward: forward, Logs: logs}.Handler(),
		ReadHeaderTimeout: kubelettest.Timeout,
		TLSConfig:         &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool},
		// Upgraded connections need HTTP/1.1.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	return server.ListenAndServeTLS(cert, key)
}

// logs writes three lines, and the requested number of lines.
func logs(w http.ResponseWriter, r *http.Request) {
	for i := range 3 {
		fmt.Fprintf(w, "line %d of %s\n", i, r.URL.Path)
	}
	if tail := r.URL.Query().Get("tailLines"); tail != "" {
		fmt.Fprintf(w, "tail %s\n", tail)
	}
}

// run runs a command. Attaching runs cat.
func run(ctx context.Context, command []string, streams kubelettest.Streams) *metav1.Status {
	if len(command) == 0 {
		command = []string{"cat"}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	if s := streams[corev1.StreamTypeStdin]; s != nil {
		// Run must not wait for a process that does not read all of its input.
		in, err := cmd.StdinPipe()
		if err != nil {
			return statusOf(err)
		}
		go func() {
			_, _ = io.Copy(in, s)
			_ = in.Close()
		}()
	}
	if s := streams[corev1.StreamTypeStdout]; s != nil {
		cmd.Stdout = s
	}
	if s := streams[corev1.StreamTypeStderr]; s != nil {
		cmd.Stderr = s
	}
	return statusOf(cmd.Run())
}

// statusOf returns the status for the error of a command.
func statusOf(err error) *metav1.Status {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return kubelettest.Exited(strconv.Itoa(exit.ExitCode()))
	default:
		return &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
}

// forward copies between conn and a port of this machine.
func forward(port string, conn io.ReadWriteCloser) {
	defer conn.Close()
	target, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return
	}
	defer target.Close()
	go func() { _, _ = io.Copy(target, conn) }()
	_, _ = io.Copy(conn, target)
}
