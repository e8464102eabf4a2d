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
	// closeWait bounds the time for the closing frame of a connection that the client has left.
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

// Socket writes a watch into WebSocket messages, one per event.
type Socket struct {
	conn   *websocket.Conn
	binary bool
	header int // length in bytes of an event's length header, which messages do not need
}

// NewSocket returns a socket for a connection, which sends events without their header of the given
// length.
func NewSocket(conn *websocket.Conn, binary bool, header int) *Socket {
	return &Socket{conn: conn, binary: binary, header: header}
}

// SetWriteDeadline bounds the time of later writes.
func (s *Socket) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }

// Write sends one event.
func (s *Socket) Write(event []byte) error {
	if s.binary {
		return websocket.Message.Send(s.conn, event[s.header:])
	}
	return websocket.Message.Send(s.conn, string(event))
}

// SendOverWebSocket upgrades the request and sends the data of from in WebSocket messages, after an
// empty one that shows that the stream has started. The subprotocol decides between binary messages
// and base64 in text messages. SendOverWebSocket returns when from ends, or when the client
// disconnects, and closes from.
func SendOverWebSocket(w http.ResponseWriter, r *http.Request, from io.ReadCloser) {
	websocket.Server{
		Handshake: chooseProtocol,
		Handler: func(conn *websocket.Conn) {
			removed := make(chan struct{})
			go func() { // the client's data is discarded; the read ends when it disconnects
				defer close(removed)
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.SetWriteDeadline(time.Now().Add(closeWait))
				_ = from.Close()
			}()
			m := &messageWriter{conn: conn, encode: slices.Contains(conn.Config().Protocol, base64Protocol)}
			if _, err := m.Write(nil); err == nil {
				_, _ = io.Copy(m, from) // the response has started: an error can only cut it
			}
			_ = conn.Close()
			<-removed
		},
	}.ServeHTTP(w, r)
}

// chooseProtocol selects the first subprotocol of the client that the server supports. A client may
// also request none.
func chooseProtocol(c *websocket.Config, _ *http.Request) error {
	if len(c.Protocol) == 0 {
		return nil
	}
	i := slices.IndexFunc(c.Protocol, func(p string) bool { return p == binaryProtocol || p == base64Protocol })
	if i < 0 {
		return fmt.Errorf("unsupported subprotocols %q, use %s or %s", c.Protocol, binaryProtocol, base64Protocol)
	}
	c.Protocol = c.Protocol[i : i+1]
	return nil
}

// messageWriter sends each write as one WebSocket message.
type messageWriter struct {
	conn   *websocket.Conn
	encode bool // in base64
}

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
