// Package pipetest connects clients and servers in memory, for tests in a synctest bubble: the time
// of a bubble stands still while a goroutine waits for a real socket.
//
// It is for tests only.
package pipetest

import (
	"context"
	"net"
	"sync"
)

// Listener accepts the connections of Dial. Its methods are safe for concurrent use.
type Listener struct {
	port   int
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a Listener. Its address is 127.0.0.1 with the port, on which nothing listens.
func Listen(port int) *Listener {
	return &Listener{port: port, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }

// Dial returns the client end of a connection once the server accepts it. Writes block until the
// other end reads. It returns net.ErrClosed after Close.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
