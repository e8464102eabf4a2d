package responsewriters

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
)

// stuck is a client that takes the first piece, and then nothing for a while.
type stuck struct {
	http.ResponseWriter
	pieces int
	waits  chan struct{} // closed when it is waited for
	goesOn chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	if s.pieces++; s.pieces == 2 {
		close(s.waits)
		<-s.goesOn
	}
	return len(b), nil
}

// channel implements Turns: it has as many as are in it.
type channel chan struct{}

func (c channel) Enter(ctx context.Context) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c channel) Leave() { <-c }

// slowChannel implements SlowTurns.
type slowChannel struct{ channel }

func (c slowChannel) Enter(r *http.Request, _ bool) error { return c.channel.Enter(r.Context()) }

// TestLongAnswersTakeTurns: there is one turn. Who waits for a client has none, and all
// are given back, whatever becomes of an answer.
func TestLongAnswersTakeTurns(t *testing.T) {
	turns := make(channel, 1)
	answer := func(w http.ResponseWriter, n int, end func(p *pieces)) {
		p := newPieces(w, httptest.NewRequest("GET", "/", nil), "text/plain", turns)
		defer p.rest()
		for range n {
			if _, err := p.Write(bytes.Repeat([]byte("x"), pieceSize)); err != nil {
				t.Error(err)
			}
		}
		end(p)
	}
	whole := func(p *pieces) {
		if err := p.end(); err != nil {
			t.Error(err)
		}
	}
	s := &stuck{ResponseWriter: httptest.NewRecorder(), waits: make(chan struct{}), goesOn: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer(s, 3, whole)
	}()
	<-s.waits
	w := httptest.NewRecorder()
	answer(w, 5, whole) // does not wait for the stuck one
	if n := w.Body.Len(); n != 5*pieceSize {
		t.Errorf("%d bytes", n)
	}
	func() {
		defer func() { _ = recover() }()
		answer(httptest.NewRecorder(), 2, func(*pieces) {
			if len(turns) != 1 {
				t.Error("what is made has no turn")
			}
			panic("an object that cannot be shown")
		})
	}()
	close(s.goesOn)
	<-done
	if n := len(turns); n != 0 {
		t.Errorf("%d turns are left", n)
	}
}

// TestNoTurnWhileTheStoreIsRead: who writes objects as they come from the store has a turn
// for each that is made, and none while it waits for the next one.
func TestNoTurnWhileTheStoreIsRead(t *testing.T) {
	turns := make(channel, 1)
	w := httptest.NewRecorder()
	p := newPieces(w, httptest.NewRequest("GET", "/", nil), "text/plain", turns)
	defer p.rest()
	failed := errors.New("the store does not answer")
	const objects = 3
	l := &List{Walk: func(visit func(*watchcache.Entry) error) error {
		for n := range objects {
			if len(turns) != 0 {
				t.Errorf("object %d is read with a turn", n)
			}
			if err := visit(nil); err != nil {
				return err
			}
		}
		return failed
	}}
	made := 0
	err := p.each(l, func(*watchcache.Entry) error {
		if want := min(made, 1); len(turns) != want {
			t.Errorf("object %d is made with %d turns", made, len(turns))
		}
		made++
		p.buf = append(p.buf, bytes.Repeat([]byte("x"), pieceSize)...)
		return p.sent(nil)
	})
	if !errors.Is(err, failed) || made != objects || w.Body.Len() != objects*pieceSize {
		t.Errorf("%d objects, %d bytes, %v", made, w.Body.Len(), err)
	}
}

// TestSlowFormsTakeTurns: from the first object on, and where there is a single large one.
func TestSlowFormsTakeTurns(t *testing.T) {
	turns := make(channel, 1)
	for _, walked := range []bool{false, true} {
		p := newPieces(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "text/plain", turns)
		p.slow = true
		each := func(visit func(*watchcache.Entry) error) error { return visit(nil) }
		l := &List{Items: []*watchcache.Entry{watchcache.Apart("k", nil)}}
		if walked {
			l.Walk = each
		}
		err := p.each(l, func(*watchcache.Entry) error {
			if len(turns) != 1 {
				t.Errorf("walked %t: the first object has no turn", walked)
			}
			return nil
		})
		if p.rest(); err != nil || len(turns) != 0 {
			t.Errorf("%v, %d turns are left", err, len(turns))
		}
	}
	for _, c := range []struct {
		media string
		size  int
		waits bool
	}{
		{api.MediaYAML, 2 * largeToDress, true}, {api.MediaCBOR, 2 * largeToDress, true}, {api.MediaYAML, 100, false},
	} {
		f := &Form{Choice: negotiation.Choice{Media: c.media}, answers: &Answers{Slow: slowChannel{turns}}}
		ctx, cancel := context.WithCancel(t.Context())
		turns <- struct{}{} // of somebody else
		cancel()
		begun := false
		ctx = request.WithBegun(ctx, func() { begun = true })
		_, err := f.dressInTurn(httptest.NewRequest("GET", "/", nil).WithContext(ctx), []byte(`{"a":"`+strings.Repeat("x", c.size)+`"}`))
		if errors.Is(err, context.Canceled) != c.waits || begun != c.waits {
			t.Errorf("%s of %d bytes: %v, its work is over: %t", c.media, c.size, err, begun)
		}
		if <-turns; len(turns) != 0 {
			t.Error("a turn is left")
		}
	}
}

// told notes what is written, as it is given.
type told struct {
	*httptest.ResponseRecorder
	writes [][]byte
}

func (w *told) Write(b []byte) (int, error) {
	w.writes = append(w.writes, b)
	return w.ResponseRecorder.Write(b)
}

// TestLargeItemsAreNotCopied: they are written as they are, after what came before them, and
// what comes after them is made in a turn.
func TestLargeItemsAreNotCopied(t *testing.T) {
	for _, size := range []int{1, largeItem - 1, largeItem, pieceSize - 1, pieceSize, 3 * pieceSize} {
		turns := make(channel, 1)
		w := &told{ResponseRecorder: httptest.NewRecorder()}
		p := newPieces(w, httptest.NewRequest("GET", "/", nil), "text/plain", turns)
		item, whole := bytes.Repeat([]byte("i"), size), []byte(nil)
		for range 3 {
			p.buf = append(p.buf, "before"...)
			if err := p.share(item); err != nil {
				t.Fatal(err)
			}
			whole = append(append(whole, "before"...), item...)
		}
		if left := 3*(size+len("before")) >= pieceSize; len(turns) == 1 != left {
			t.Errorf("%d bytes: what follows has %d turns", size, len(turns))
		}
		if err := p.end(); err != nil {
			t.Error(err)
		}
		p.rest()
		if !bytes.Equal(w.Body.Bytes(), whole) {
			t.Errorf("items of %d bytes: %d bytes are written, want %d", size, w.Body.Len(), len(whole))
		}
		shared := 0
		for _, b := range w.writes {
			if len(b) > 0 && &b[0] == &item[0] {
				shared++
			}
		}
		if want := map[bool]int{true: 3}[size >= largeItem]; shared != want {
			t.Errorf("items of %d bytes: %d are written as they are, want %d", size, shared, want)
		}
	}
}

// TestListsThatGetNoTurn in time are no answers: the client learns it, by a Status or by the end of the
// connection. Who has left learns nothing.
func TestListsThatGetNoTurn(t *testing.T) {
	for _, c := range []struct {
		name  string
		slow  bool // so that nothing has gone out
		leave bool
		want  string
	}{
		{"no time left before the first piece", true, false, "request did not complete within the allotted timeout"},
		{"no time left after it", false, false, http.ErrAbortHandler.Error()},
		{"the client leaves", true, true, ""},
		{"the client leaves after the first piece", false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := make(channel, 1)
				turns <- struct{}{} // of somebody else, for ever
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if c.leave {
					ctx, cancel = context.WithCancel(t.Context())
					cancel()
				}
				w := httptest.NewRecorder()
				p := newPieces(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx), "text/plain", turns)
				p.slow = c.slow
				answer := func() (err error) {
					defer func() {
						if r := recover(); r != nil {
							err = r.(error)
						}
					}()
					l := &List{Items: []*watchcache.Entry{watchcache.Apart("a", nil), watchcache.Apart("b", nil)}}
					err = p.each(l, func(*watchcache.Entry) error {
						p.buf = append(p.buf, bytes.Repeat([]byte("x"), pieceSize)...)
						return p.sent(nil)
					})
					if err != nil {
						return p.abort(err)
					}
					return p.end()
				}
				got := ""
				if err := answer(); err != nil {
					got = err.Error()
				}
				if !strings.Contains(got, c.want) || c.want == "" && got != "" || c.slow && (p.started || w.Body.Len() > 0) {
					t.Errorf("it ends with %q, %d bytes", got, w.Body.Len())
				}
			})
		})
	}
}

// TestSpells: who looks at much has a turn after the first pause, gives it back at each, and learns
// in the words of the API that there is none in time.
func TestSpells(t *testing.T) {
	turns := make(channel, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := (&Answers{Turns: turns}).Spells(ctx)
	for range 3 {
		if len(turns) > 1 || !s.Pause() || len(turns) != 1 {
			t.Fatalf("%d turns, %v", len(turns), s.Err())
		}
	}
	if s.End(); len(turns) != 0 {
		t.Error("the turn is not given back")
	}
	turns <- struct{}{} // somebody else has it
	cancel(nil)
	if s.Pause() || !errors.Is(s.Err(), context.Canceled) {
		t.Errorf("nobody waits any more: %v", s.Err())
	}
	late, end := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer end()
	s = (&Answers{Turns: turns}).Spells(late)
	if s.Pause() || !apierrors.IsTimeout(s.Err()) {
		t.Errorf("no turn in time: %v", s.Err())
	}
	if s.End(); len(turns) != 1 {
		t.Error("somebody else's turn was given back")
	}
}

// TestNoSpells: who needs none goes on without turns.
func TestNoSpells(t *testing.T) {
	var s *Spells
	if !s.Pause() || s.Err() != nil {
		t.Error("it does not go on")
	}
	s.End()
}
