package represent

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/audit"
)

// pieces writes a long answer through a pooled buffer.
type pieces struct {
	w       http.ResponseWriter
	r       *http.Request
	media   string
	buf     []byte
	pooled  *[]byte
	started bool
	waited  time.Duration // for the client
	gone    bool          // nobody reads the rest
	late    bool          // because there is no time left
	refused error         // because there was no turn
	told    *audit.Copy   // for the audit log
	turns   Turns
	works   bool // has a turn
	slow    bool // the first piece takes long to make, too
}

var pieceBuffers = sync.Pool{New: func() any { b := make([]byte, 0, pieceSize+16<<10); return &b }}

// newPieces returns a writer, which rests at the end, whatever comes of it.
func newPieces(w http.ResponseWriter, r *http.Request, media string, turns Turns) *pieces {
	b := pieceBuffers.Get().(*[]byte)
	p := &pieces{w: w, r: r, media: media, turns: turns, buf: (*b)[:0], pooled: b}
	if s, ok := turns.(*slowly); ok {
		s.begun = &p.started
	}
	return p
}

// flush sends what has gathered once it is enough; false when the client is
// gone.
func (p *pieces) flush(all bool) bool {
	if len(p.buf) < pieceSize && !all {
		return true
	}
	p.start()
	p.told.Write(p.buf)
	if !p.gone && p.r.Method != http.MethodHead {
		p.rest()
		begin := time.Now()
		_, err := p.w.Write(p.buf)
		p.waited += time.Since(begin)
		if err != nil || !all && p.context().Err() != nil {
			p.leave()
		}
	}
	if p.buf = p.buf[:0]; !all {
		p.work()
	}
	return !p.gone
}

// context is that of the request. The time for which the response has waited for its client is added
// to the deadline: a client may read slowly.
func (p *pieces) context() context.Context {
	ctx := p.r.Context()
	deadline, _ := ctx.Deadline()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(deadline) < p.waited {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// work waits for a turn to make the next piece; the first one needs none, unless it is slow.
func (p *pieces) work() {
	if p.turns == nil || p.works || p.gone {
		return
	}
	err := p.turns.Enter(p.context())
	if p.works = err == nil; !p.works {
		p.leave()
		p.refused = err
	}
}

// leave gives the answer up.
func (p *pieces) leave() {
	p.gone = true
	p.late = errors.Is(p.r.Context().Err(), context.DeadlineExceeded)
}

// rest gives the turn to others.
func (p *pieces) rest() {
	if p.works {
		p.works = false
		p.turns.Leave()
	}
}

// pause lets others work, and waits for a turn to go on: much has been looked at, whether or not
// there is anything to write. It is false when nobody waits for the rest.
func (p *pieces) pause() bool {
	p.rest()
	p.work()
	return !p.gone
}

// share sends bytes that others have too after what has gathered, and copies them only
// when they are few.
func (p *pieces) share(b []byte) error {
	if len(b) < largeItem {
		p.buf = append(p.buf, b...)
		return p.sent(nil)
	}
	if !p.flush(true) {
		return errGone
	}
	own := p.buf
	p.buf = b
	defer func() { p.buf = own }()
	if p.flush(true) {
		p.work()
	}
	if p.gone {
		return errGone
	}
	return nil
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
	h := p.w.Header()
	h.Set("Content-Type", p.media)
	h.Set("Cache-Control", "no-cache, private")
	SendWarnings(p.w, p.r)
	p.w.WriteHeader(http.StatusOK)
}

// end sends the rest.
func (p *pieces) end() error {
	if p.gone {
		return p.abort(errGone)
	}
	p.flush(true)
	p.told.Close()
	p.release()
	return nil
}

// errGone tells that nobody is there who would read the rest.
var errGone = errors.New("the client is gone")

// sent sends what has gathered, after an item was appended with err, and returns
// errGone when the client is.
func (p *pieces) sent(err error) error {
	if err == nil && !p.flush(false) {
		return errGone
	}
	return err
}

// abort ends the answer with an error: as a Status while nothing has gone out,
// else by breaking the connection off. A client that is gone is told nothing; one that
// waits still must not take what it has for the whole.
func (p *pieces) abort(err error) error {
	p.release()
	switch {
	case !errors.Is(err, errGone):
	case p.late:
		err = inTime(p.r.Context().Err())
	case p.refused != nil && p.r.Context().Err() == nil:
		err = p.refused
	default:
		return nil
	}
	if p.started {
		panic(http.ErrAbortHandler)
	}
	p.w.Header().Del("Content-Encoding")
	return err
}

func (p *pieces) release() {
	p.told.Drop()
	if cap(p.buf) <= mostPooled {
		*p.pooled = p.buf[:0]
		pieceBuffers.Put(p.pooled)
	}
	p.buf, p.pooled = nil, nil
}

// Answers are written in pieces of about this size.
const pieceSize = 128 << 10

const (
	// largeItem is the size in bytes from which an object is not copied into a piece.
	largeItem = 64 << 10
	// mostPooled is how large buffers are kept for others, in bytes.
	mostPooled = 256 << 10
)
