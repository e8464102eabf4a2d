package aggregate

import (
	"bufio"
	"context"
	"net"
	"net/http"
)

// ender closes a connection that was taken over when the request's context ends,
// which nothing else does.
type ender struct {
	http.ResponseWriter
	ctx context.Context
}

// Hijack implements http.Hijacker.
func (e *ender) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(e.ResponseWriter).Hijack()
	if err == nil {
		closing := conn
		context.AfterFunc(e.ctx, func() { _ = closing.Close() })
	}
	return conn, rw, err
}

// Unwrap serves http.ResponseController.
func (e *ender) Unwrap() http.ResponseWriter { return e.ResponseWriter }
