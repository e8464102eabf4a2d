package streaming

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

const (
	// binaryProtocol is the subprotocol that sends the bytes of a stream in binary messages.
	binaryProtocol = "binary.k8s.io"
	// base64Protocol is the subprotocol that sends the bytes of a stream in text messages, in
	// base64.
	base64Protocol = "base64.binary.k8s.io"
	// closeWait is the maximum time for writing the closing frame after the client has
	// disconnected.
	closeWait = time.Second
)

// IsWebSocket reports whether the request asks for an upgrade to WebSocket.
func IsWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	return slices.ContainsFunc(r.Header.Values("Connection"), func(v string) bool {
		return strings.Contains(strings.ToLower(v), "upgrade")
	})
}

// Socket sends the events of a watch in WebSocket messages, one per event.
type Socket struct {
	conn       *websocket.Conn
	binary     bool // whether messages are binary; otherwise they are text
	headerSize int  // size in bytes of the header of a binary event, which is not sent
}

// NewSocket returns a socket for a connection. In a binary watch response, each event starts with a
// header of headerSize bytes, which holds the event's length. The socket does not send the header,
// because each message has a length of its own.
func NewSocket(conn *websocket.Conn, binary bool, headerSize int) *Socket {
	return &Socket{conn: conn, binary: binary, headerSize: headerSize}
}

// SetWriteDeadline bounds the time of later writes.
func (s *Socket) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }

// Write sends one event, which includes its header.
func (s *Socket) Write(event []byte) error {
	if s.binary {
		return websocket.Message.Send(s.conn, event[s.headerSize:])
	}
	return websocket.Message.Send(s.conn, string(event)) // text events have no header
}

// SendOverWebSocket upgrades the request and sends the data of from in WebSocket messages. An empty
// message at the start shows that the stream has started. The subprotocol decides between binary
// messages and base64 in text messages. SendOverWebSocket closes from. It returns after from has
// been sent completely, or after the client has disconnected.
func SendOverWebSocket(w http.ResponseWriter, r *http.Request, from io.ReadCloser) {
	websocket.Server{
		Handshake: chooseProtocol,
		Handler: func(conn *websocket.Conn) {
			disconnected := make(chan struct{})
			go func() {
				defer close(disconnected)
				// Discard what the client sends, until either side closes the connection.
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.SetWriteDeadline(time.Now().Add(closeWait))
				_ = from.Close()
			}()
			m := &messageWriter{conn: conn, encode: slices.Contains(conn.Config().Protocol, base64Protocol)}
			if _, err := m.Write(nil); err == nil {
				// The response has started, so an error can no longer be reported to the client.
				_, _ = io.Copy(m, from)
			}
			_ = conn.Close()
			<-disconnected
		},
	}.ServeHTTP(w, r)
}

// chooseProtocol selects the first subprotocol of the client that the server supports. A client may
// also request none.
func chooseProtocol(config *websocket.Config, _ *http.Request) error {
	if len(config.Protocol) == 0 {
		return nil
	}
	i := slices.IndexFunc(config.Protocol, func(p string) bool { return p == binaryProtocol || p == base64Protocol })
	if i < 0 {
		return fmt.Errorf("unsupported subprotocols %q, use %s or %s", config.Protocol, binaryProtocol, base64Protocol)
	}
	config.Protocol = config.Protocol[i : i+1]
	return nil
}

// messageWriter sends each write as one WebSocket message.
type messageWriter struct {
	conn   *websocket.Conn
	encode bool // whether to send base64 in text messages
}

// Write implements io.Writer.
func (m *messageWriter) Write(b []byte) (int, error) {
	var err error
	if m.encode {
		err = websocket.Message.Send(m.conn, base64.StdEncoding.EncodeToString(b))
	} else {
		err = websocket.Message.Send(m.conn, b)
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}
