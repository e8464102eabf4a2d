package endpoints

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/websocket"

	"binnacle/services/apiserver/internal/watchcache"
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

// serveSocket runs a watch over WebSocket. start opens the watcher; its error
// is told in the stream.
func (s *stream) serveSocket(ctx context.Context, start func() (*watchcache.Watcher, error)) {
	websocket.Server{
		// Callers are known by certificate or token, never by cookie, so a page
		// of another origin gains nothing.
		Handshake: func(*websocket.Config, *http.Request) error { return nil },
		Handler: func(conn *websocket.Conn) {
			defer conn.Close()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s.socket = &socket{conn: conn, binary: s.form.Binary()}
			w, err := start()
			if err != nil {
				s.end(ctx, err)
				return
			}
			defer w.Close()
			gone := make(chan struct{})
			go func() { // the client says nothing; reading finds out that it is gone
				defer close(gone)
				_, _ = io.Copy(io.Discard, conn)
				cancel()
			}()
			s.run(ctx, w)
			_ = conn.Close()
			<-gone
		},
	}.ServeHTTP(s.call.W, s.call.R)
}
