package kubeletproxy

import (
	"bufio"
	"io"
	"net"

	"github.com/mxk/go-flowrate/flowrate"
)

// rateLimited limits the rate of a connection in each direction.
type rateLimited struct {
	net.Conn
	reads  io.Reader
	writes io.Writer
}

// limitRate returns the connection and its buffers limited to a number of bytes per second; 0 means
// no limit. It keeps buffered input.
func limitRate(conn net.Conn, rw *bufio.ReadWriter, rate int64) (net.Conn, *bufio.ReadWriter) {
	if rate <= 0 {
		return conn, rw
	}
	l := &rateLimited{Conn: conn, reads: flowrate.NewReader(rw.Reader, rate), writes: flowrate.NewWriter(conn, rate)}
	return l, bufio.NewReadWriter(bufio.NewReader(l), bufio.NewWriter(l))
}

func (l *rateLimited) Read(b []byte) (int, error)  { return l.reads.Read(b) }
func (l *rateLimited) Write(b []byte) (int, error) { return l.writes.Write(b) }
