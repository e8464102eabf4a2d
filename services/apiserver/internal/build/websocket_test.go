package build

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	media "binnacle/libs/api"
)

// message is a WebSocket message.
type message struct {
	kind byte
	data []byte
}

// readMessages decodes each WebSocket message into a message.
var readMessages = websocket.Codec{Unmarshal: func(data []byte, kind byte, v any) error {
	*v.(*message) = message{kind, bytes.Clone(data)}
	return nil
}}

// dialSocket opens a WebSocket.
func (api *testServer) dialSocket(path, accept string, protocols ...string) (*websocket.Conn, error) {
	api.t.Helper()
	config, err := websocket.NewConfig(strings.Replace(api.url, "https:", "wss:", 1)+path, "http://localhost")
	if err != nil {
		api.t.Fatal(err)
	}
	security := api.client.Transport.(*http.Transport).TLSClientConfig
	config.TlsConfig = &tls.Config{InsecureSkipVerify: true, Certificates: security.Certificates}
	config.Protocol = protocols
	if accept != "" {
		config.Header.Set("Accept", accept)
	}
	return websocket.DialConfig(config)
}

// TestLogsAreSentOverWebSocket checks that logs are sent over WebSockets in each subprotocol, and
// that they end when the client leaves.
func TestLogsAreSentOverWebSocket(t *testing.T) {
	t.Parallel()
	var left atomic.Bool
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/endless") {
			echo(w, r)
			return
		}
		_, _ = io.WriteString(w, "first line")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		left.Store(true)
	}))
	defer kubelet.Close()
	api := startServer(t, nil)
	api.createDefaultAccount()
	api.createNode("n", kubelet.URL)
	api.mustSend(201, "POST", podsPath,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n","automountServiceAccountToken":false,"containers":[{"name":"c","image":"x"},{"name":"endless","image":"x"}]}}`)
	const log = podsPath + "/p/log?container=c&tailLines=3&timestamps=true"
	const wantLog = `GET /containerLogs/default/p/c?tailLines=3&timestamps=true  auth=""`

	// 1. The server chooses the first subprotocol that it supports, and sends the log after an
	// empty message.
	for _, test := range []struct {
		path      string
		protocols []string
		chosen    string
		kind      byte
	}{
		{path: log, kind: websocket.BinaryFrame},
		{path: log, protocols: []string{"binary.k8s.io"}, chosen: "binary.k8s.io", kind: websocket.BinaryFrame},
		{
			path:      log,
			protocols: []string{"unknown", "base64.binary.k8s.io", "binary.k8s.io"},
			chosen:    "base64.binary.k8s.io",
			kind:      websocket.TextFrame,
		},
		{
			path:      log + "&follow=true",
			protocols: []string{"binary.k8s.io"},
			chosen:    "binary.k8s.io",
			kind:      websocket.BinaryFrame,
		},
	} {
		conn, err := api.dialSocket(test.path, "", test.protocols...)
		if err != nil {
			t.Errorf("%v: %v", test.protocols, err)
			continue
		}
		if got := strings.Join(conn.Config().Protocol, ","); got != test.chosen {
			t.Errorf("%v: the server chose %q, want %q", test.protocols, got, test.chosen)
		}
		var all []byte
		for index := 0; ; index++ {
			var received message
			if err := readMessages.Receive(conn, &received); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if received.kind != test.kind || index == 0 && len(received.data) > 0 {
				t.Errorf("%v: got message %d of type %d: %q, want type %d and an empty first message",
					test.protocols, index, received.kind, received.data, test.kind)
			}
			if test.kind == websocket.TextFrame {
				if received.data, err = base64.StdEncoding.DecodeString(string(received.data)); err != nil {
					t.Error(err)
				}
			}
			all = append(all, received.data...)
		}
		want := wantLog
		if strings.Contains(test.path, "follow") {
			want = strings.Replace(want, "?", "?follow=true&", 1)
		}
		if string(all) != want {
			t.Errorf("%s: got %q, want %q", test.path, all, want)
		}
		conn.Close()
	}

	// 2. It rejects clients that offer only unsupported subprotocols.
	if _, err := api.dialSocket(log, "", "channel.k8s.io"); err == nil {
		t.Error("unsupported subprotocol: got no error, want one")
	}

	// 3. When the client leaves, the server closes its connection to the kubelet.
	conn, err := api.dialSocket(podsPath+"/p/log?container=endless&follow=true", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "first line"} {
		var received message
		if err := readMessages.Receive(conn, &received); err != nil || string(received.data) != want {
			t.Errorf("got message %q, error %v, want %q", received.data, err, want)
		}
	}
	conn.Close()
	api.waitUntil("the server leaves the kubelet when the client leaves", left.Load)
}

// TestWatchIsSentOverWebSocket checks that each message of a watch is an event in the form of
// kube-apiserver, and that a watch without an origin is rejected.
func TestWatchIsSentOverWebSocket(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.createNode("n", "https://127.0.0.1:10250")
	const path = "/api/v1/nodes?watch=true&timeoutSeconds=20"
	firstEvent := func(accept string) message {
		conn, err := api.dialSocket(path, accept)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var received message
		if err := readMessages.Receive(conn, &received); err != nil {
			t.Fatal(err)
		}
		return received
	}
	received := firstEvent(media.MediaJSON)
	if received.kind != websocket.TextFrame || !json.Valid(received.data) || !bytes.HasSuffix(received.data, []byte("}\n")) {
		t.Errorf("JSON: got message of type %d: %q, want text with one line of JSON",
			received.kind, received.data)
	}
	received = firstEvent(media.MediaProtobuf)
	var e metav1.WatchEvent
	if err := e.Unmarshal(received.data); err != nil || received.kind != websocket.BinaryFrame || e.Type != "ADDED" ||
		!bytes.HasPrefix(e.Object.Raw, []byte("k8s\x00")) {
		t.Errorf("protobuf: got message of type %d: %q (%v), want a binary one with ADDED and protobuf",
			received.kind, received.data, err)
	}
	upgrade, err := http.NewRequest(http.MethodGet, api.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	upgrade.Header = http.Header{
		"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	security := api.client.Transport.(*http.Transport).TLSClientConfig
	plain := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: security.Certificates}}
	defer plain.CloseIdleConnections()
	httpResponse, err := plain.RoundTrip(upgrade)
	if err != nil {
		t.Fatal(err)
	}
	httpResponse.Body.Close()
	if httpResponse.StatusCode != http.StatusForbidden {
		t.Errorf("watch without an origin: got %s, want 403", httpResponse.Status)
	}
}
