//go:build !(go1.27 && !http2legacy)

package serving

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// writes counts what is written at a time.
type writes struct {
	net.Conn
	n atomic.Int64
}

func (w *writes) Write(p []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(p)
}

// TestFramesGather: each part of a long answer, of eight frames and a little, is given to the
// connection at once.
func TestFramesGather(t *testing.T) {
	const parts, part = 16, 8*16<<10 + 1500
	gatherFrames()
	client, server := net.Pipe()
	w, ended := &writes{Conn: server}, make(chan struct{})
	go func() {
		defer close(ended)
		new(http2.Server).ServeConn(w, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range parts {
				_, _ = w.Write(make([]byte, part))
			}
		})})
	}()
	transport := &http2.Transport{}
	c, err := transport.NewClientConn(client)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	before := w.n.Load()
	if n, err := io.Copy(io.Discard, resp.Body); n != parts*part || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	if n := w.n.Load() - before; n > parts+2 {
		t.Errorf("%d writes, for %d parts", n, parts)
	}
	_ = c.Close()
	<-ended
}
