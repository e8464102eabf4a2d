package endpoints

import (
	"bytes"
	"net/http"
	"strings"

	"golang.org/x/net/websocket"
)

// isWebSocket tells whether the client wants to go on in WebSocket frames.
func isWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, v := range strings.Split(r.Header.Get("Connection"), ",") {
		if strings.EqualFold(strings.TrimSpace(v), "upgrade") {
			return true
		}
	}
	return false
}

// socket writes a watch into WebSocket messages: one event each, as text, or
// binary for protobuf and CBOR.
type socket struct {
	conn   *websocket.Conn
	binary bool
}

func (s *socket) write(event []byte) error {
	if s.binary {
		return websocket.Message.Send(s.conn, event)
	}
	return websocket.Message.Send(s.conn, string(bytes.TrimRight(event, "\n")))
}
