package kubelettest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// Timeout bounds the wait for a client to open its streams and to read the remaining output.
const Timeout = 20 * time.Second

// Streams holds the streams of a command by type (corev1.StreamTypeStdin and so on). Streams that
// the client did not request are missing.
type Streams map[string]io.ReadWriteCloser

// A Kubelet serves pods whose containers are implemented by its functions.
type Kubelet struct {
	// Run runs a command, or attaches if there is none, and returns the result.
	Run func(ctx context.Context, command []string, streams Streams) *metav1.Status
	// Forward serves one connection to a port of a pod, and closes it.
	Forward func(port string, conn io.ReadWriteCloser)
	// Logs serves requests for logs.
	Logs http.HandlerFunc
	// Reject may respond to a request itself, and reports whether it did. It may be nil.
	Reject func(w http.ResponseWriter, r *http.Request) bool
}

// Handler serves the paths of a kubelet.
func (k Kubelet) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, serve := range map[string]http.HandlerFunc{
		"/exec/": k.serveCommand, "/attach/": k.serveCommand, "/portForward/": k.servePortForward, "/containerLogs/": k.Logs,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if k.Reject == nil || !k.Reject(w, r) {
				serve(w, r)
			}
		})
	}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "kubelet is ok") })
	return mux
}

// acceptStreams upgrades a request and returns the connection and the streams that the client
// opens. It returns nil after an error response.
func acceptStreams(
	w http.ResponseWriter,
	r *http.Request,
	protocols ...string,
) (httpstream.Connection, <-chan httpstream.Stream) {
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

// serveCommand runs a command with the streams of the client.
func (k Kubelet) serveCommand(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	conn, opened := acceptStreams(w, r, remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name)
	if conn == nil {
		return
	}
	defer conn.Close()
	expected := 1 // the stream for the result
	for _, name := range []string{corev1.ExecStdinParam, corev1.ExecStdoutParam, corev1.ExecStderrParam, corev1.ExecTTYParam} {
		if values.Get(name) == "1" {
			expected++
		}
	}
	streams := Streams{}
	for len(streams) < expected {
		select {
		case s := <-opened:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-time.After(Timeout):
			return
		}
	}
	result := streams[corev1.StreamTypeError]
	delete(streams, corev1.StreamTypeError)
	_ = json.NewEncoder(result).Encode(k.Run(r.Context(), values["command"], streams))
	_ = result.Close()
	for _, s := range streams {
		_ = s.Close()
	}
	select {
	case <-conn.CloseChan(): // the other side has read everything
	case <-time.After(Timeout):
	}
}

// servePortForward forwards the streams of the client to a port.
func (k Kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	conn, streams := acceptStreams(w, r, portforward.PortForwardV1Name)
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
			go k.Forward(s.Headers().Get(corev1.PortHeader), s)
		case <-conn.CloseChan():
			return
		}
	}
}

// Exited returns the result of a command with a nonzero exit code.
func Exited(code string) *metav1.Status {
	return &metav1.Status{
		Status:  metav1.StatusFailure,
		Reason:  remotecommand.NonZeroExitCodeReason,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: code}}},
	}
}
