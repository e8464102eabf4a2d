package kubeletproxy

import (
	"bufio"
	"io"
	"net"

	"github.com/mxk/go-flowrate/flowrate"
)

// limited limits the rate of a connection in each direction.
type limited struct {
	net.Conn
	in  io.Reader
	out io.Writer
}

// limit returns the connection and its buffers limited to a number of bytes per second; 0 means no
// limit. It keeps buffered input.
func limit(conn net.Conn, rw *bufio.ReadWriter, rate int64) (net.Conn, *bufio.ReadWriter) {
	if rate <= 0 {
		return conn, rw
	}
	l := &limited{Conn: conn, in: flowrate.NewReader(rw.Reader, rate), out: flowrate.NewWriter(conn, rate)}
	return l, bufio.NewReadWriter(bufio.NewReader(l), bufio.NewWriter(l))
}

func (l *limited) Read(b []byte) (int, error)  { return l.in.Read(b) }
func (l *limited) Write(b []byte) (int, error) { return l.out.Write(b) }
