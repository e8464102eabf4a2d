package kubeletproxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy/kubelettest"
)

// kubelet is a fake kubelet with one container that runs: cat, warn TEXT (writes to stderr), exit
// CODE, and size (writes the terminal size). Forwarded ports echo.
type kubelet struct{ *httptest.Server }

// newKubelet starts a kubelet.
func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{httptest.NewTLSServer(kubelettest.Kubelet{
		Run:     runCommand,
		Forward: echoInput,
		Logs:    writePath,
		Reject:  reject,
	}.Handler())}
	t.Cleanup(k.Close)
	return k
}

// writePath writes the requested path, and blocks if the log is followed.
func writePath(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s?%s\n", r.URL.Path, r.URL.RawQuery)
	if r.URL.Query().Get("follow") != "" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// reject responds with an error that the last element of the path names: absent for 404, a status
// code, api-CODE for an API error, cut for an incomplete response, hangup for none, much for a long
// text. It returns false for any other path.
func reject(w http.ResponseWriter, r *http.Request) bool {
	how := path.Base(r.URL.Path)
	text, api := strings.CutPrefix(how, "api-")
	code, err := strconv.Atoi(text)
	switch {
	case how == "absent":
		http.Error(w, "no such thing", http.StatusNotFound)
	case err == nil && api:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Message:  "rejected by the API",
			Reason:   metav1.StatusReasonNotFound,
			Code:     int32(code),
		})
	case err == nil && code != http.StatusSwitchingProtocols:
		http.Error(w, "rejected with "+how, code)
	case err == nil, how == "hangup", how == "cut":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return true
		}
		if how == "cut" {
			_, _ = io.WriteString(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nno")
		} else if how != "hangup" {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		}
		_ = conn.Close()
	case how == "much":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	default:
		return false
	}
	return true
}

// runCommand implements the commands of the container.
func runCommand(_ context.Context, command []string, streams kubelettest.Streams) *metav1.Status {
	word := func(i int) string {
		if i < len(command) {
			return command[i]
		}
		return ""
	}
	switch word(0) {
	case "", "cat":
		_, _ = io.Copy(streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStdin])
	case "warn":
		_, _ = io.WriteString(streams[corev1.StreamTypeStderr], word(1))
	case "size":
		var size struct{ Width, Height int }
		_ = json.NewDecoder(streams[corev1.StreamTypeResize]).Decode(&size)
		_, _ = fmt.Fprintf(streams[corev1.StreamTypeStdout], "%dx%d", size.Width, size.Height)
	case "exit":
		return kubelettest.Exited(word(1))
	}
	return &metav1.Status{Status: metav1.StatusSuccess}
}

// echoInput writes the port and then sends all input back.
func echoInput(port string, conn io.ReadWriteCloser) {
	_, _ = fmt.Fprintf(conn, "port %s: ", port)
	_, _ = io.Copy(conn, conn)
	_ = conn.Close()
}
