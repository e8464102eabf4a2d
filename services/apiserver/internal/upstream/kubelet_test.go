package upstream_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	portforward "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// kubelet answers as a kubelet does, with one container that understands: cat
// (its input is its output), warn TEXT (to the standard error), exit CODE, size
// (the terminal's size, once known). A forwarded port echoes.
type kubelet struct{ *httptest.Server }

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/", runCommand)
	mux.HandleFunc("/attach/", runCommand)
	mux.HandleFunc("/portForward/", forwardPort)
	mux.HandleFunc("/containerLogs/", func(w http.ResponseWriter, r *http.Request) {
		if refuse(w, r) {
			return
		}
		fmt.Fprintf(w, "%s?%s\n", r.URL.Path, r.URL.RawQuery)
		if r.URL.Query().Get("follow") != "" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	k := &kubelet{httptest.NewTLSServer(mux)}
	t.Cleanup(k.Close)
	return k
}

// refuse answers where the last part of the path says how not to: absent, a status,
// api-STATUS for one of the API, cut, hangup, much.
func refuse(w http.ResponseWriter, r *http.Request) bool {
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
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: "refused by the API", Reason: metav1.StatusReasonNotFound, Code: int32(code),
		})
	case err == nil && code != http.StatusSwitchingProtocols:
		http.Error(w, "refused with "+how, code)
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

// accept upgrades a request and hands over the streams that the client opens.
func accept(w http.ResponseWriter, r *http.Request, protocols ...string) (httpstream.Connection, chan httpstream.Stream) {
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

func runCommand(w http.ResponseWriter, r *http.Request) {
	if refuse(w, r) {
		return
	}
	q := r.URL.Query()
	conn, streams := accept(w, r, remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name)
	if conn == nil {
		return
	}
	defer conn.Close()
	want := 1
	for _, name := range []string{"input", "output", "error", "tty"} {
		if q.Get(name) == "1" {
			want++
		}
	}
	byType := map[string]httpstream.Stream{}
	for len(byType) < want {
		select {
		case s := <-streams:
			byType[s.Headers().Get(corev1.StreamType)] = s
		case <-time.After(10 * time.Second):
			return
		}
	}
	_ = json.NewEncoder(byType[corev1.StreamTypeError]).Encode(perform(q["command"], byType))
	for _, s := range byType {
		_ = s.Close()
	}
	select {
	case <-conn.CloseChan(): // the other side has read it all
	case <-time.After(10 * time.Second):
	}
}

func perform(command []string, streams map[string]httpstream.Stream) *metav1.Status {
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
		return &metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: word(1)}}},
		}
	}
	return &metav1.Status{Status: metav1.StatusSuccess}
}

func forwardPort(w http.ResponseWriter, r *http.Request) {
	if refuse(w, r) {
		return
	}
	conn, streams := accept(w, r, portforward.PortForwardV1Name)
	if conn == nil {
		return
	}
	defer conn.Close()
	for {
		select {
		case s := <-streams:
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
				go func() {
					_, _ = fmt.Fprintf(s, "port %s: ", s.Headers().Get(corev1.PortHeader))
					_, _ = io.Copy(s, s)
					_ = s.Close()
				}()
			} else {
				_ = s.Close()
			}
		case <-conn.CloseChan():
			return
		}
	}
}
