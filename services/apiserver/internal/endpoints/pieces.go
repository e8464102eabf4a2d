package endpoints

import (
	"net/http"
	"sync"
)

// pieces writes a long answer through a pooled buffer.
type pieces struct {
	c       *call
	media   string
	buf     []byte
	pooled  *[]byte
	started bool
	gone    bool
}

var pieceBuffers = sync.Pool{New: func() any { b := make([]byte, 0, pieceSize+16<<10); return &b }}

func newPieces(c *call, media string) *pieces {
	b := pieceBuffers.Get().(*[]byte)
	return &pieces{c: c, media: media, buf: (*b)[:0], pooled: b}
}

// flush sends what has gathered once it is enough; false when the client is
// gone.
func (p *pieces) flush(all bool) bool {
	if len(p.buf) < pieceSize && !all {
		return true
	}
	p.start()
	if !p.gone && p.c.r.Method != http.MethodHead {
		if _, err := p.c.w.Write(p.buf); err != nil || p.c.r.Context().Err() != nil {
			p.gone = true
		}
	}
	p.buf = p.buf[:0]
	return !p.gone
}

// Write implements io.Writer for what is compressed on its way.
func (p *pieces) Write(b []byte) (int, error) {
	p.buf = append(p.buf, b...)
	p.flush(false)
	return len(b), nil
}

func (p *pieces) start() {
	if p.started {
		return
	}
	p.started = true
	h := p.c.w.Header()
	h.Set("Content-Type", p.media)
	h.Set("Cache-Control", "no-cache, private")
	sendWarnings(p.c.w, p.c.r)
	p.c.w.WriteHeader(http.StatusOK)
}

// end sends the rest.
func (p *pieces) end() error {
	if !p.gone {
		p.flush(true)
	}
	p.release()
	return nil
}

// abort ends the answer with an error: as a Status while nothing has gone out,
// else by breaking the connection off.
func (p *pieces) abort(err error) error {
	p.release()
	if p.started {
		panic(http.ErrAbortHandler)
	}
	return err
}

func (p *pieces) release() {
	if cap(p.buf) <= 4*pieceSize {
		*p.pooled = p.buf[:0]
		pieceBuffers.Put(p.pooled)
	}
	p.buf, p.pooled = nil, nil
}
