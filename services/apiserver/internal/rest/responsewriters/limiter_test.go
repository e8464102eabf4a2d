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
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// blockingWriter is a response writer that blocks in the second write, until proceed is closed.
type blockingWriter struct {
	http.ResponseWriter
	writes  int
	blocked chan struct{} // closed when the second write blocks
	proceed chan struct{}
}

func (s *blockingWriter) Write(b []byte) (int, error) {
	s.writes++
	if s.writes == 2 {
		close(s.blocked)
		<-s.proceed
	}
	return len(b), nil
}

// channel implements Limiter with its capacity as limit.
type channel chan struct{}

func (c channel) Acquire(ctx context.Context) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c channel) Release() { <-c }

// slowChannel implements SlowLimiter. Its capacity is the limit.
type slowChannel struct{ channel }

func (c slowChannel) Acquire(r *http.Request, _ bool) error { return c.channel.Acquire(r.Context()) }

// TestLongResponsesAreLimited checks with a limit of one that a response releases the limiter
// while it waits for its client, and when it ends or panics.
func TestLongResponsesAreLimited(t *testing.T) {
	limiter := make(channel, 1)
	// respond writes chunks and then calls end.
	respond := func(w http.ResponseWriter, chunks int, end func(out *chunkWriter)) {
		out := newChunkWriter(w, httptest.NewRequest("GET", "/", nil), "text/plain", limiter)
		defer out.releaseLimiter()
		for range chunks {
			if _, err := out.Write(bytes.Repeat([]byte("x"), chunkSize)); err != nil {
				t.Error(err)
			}
		}
		end(out)
	}
	finish := func(out *chunkWriter) {
		if err := out.finish(); err != nil {
			t.Error(err)
		}
	}
	server := &blockingWriter{ResponseWriter: httptest.NewRecorder(), blocked: make(chan struct{}), proceed: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		respond(server, 3, finish)
	}()
	<-server.blocked
	recorder := httptest.NewRecorder()
	respond(recorder, 5, finish) // the blocked response does not hold the limiter
	if n := recorder.Body.Len(); n != 5*chunkSize {
		t.Errorf("response beside a blocked one: got %d bytes, want %d", n, 5*chunkSize)
	}
	func() {
		defer func() { _ = recover() }()
		respond(httptest.NewRecorder(), 2, func(*chunkWriter) {
			if len(limiter) != 1 {
				t.Errorf("got the limiter held %d times while the next chunk is encoded, want 1", len(limiter))
			}
			panic("an object that cannot be encoded")
		})
	}()
	close(server.proceed)
	<-done
	if n := len(limiter); n != 0 {
		t.Errorf("after all responses: got the limiter held %d times, want 0", n)
	}
}

// TestLimiterIsReleasedWhileStoreIsRead checks that a response that streams from the store holds
// the limiter while it encodes an object and not while it waits for the next one.
func TestLimiterIsReleasedWhileStoreIsRead(t *testing.T) {
	limiter := make(channel, 1)
	recorder := httptest.NewRecorder()
	out := newChunkWriter(recorder, httptest.NewRequest("GET", "/", nil), "text/plain", limiter)
	defer out.releaseLimiter()
	failed := errors.New("store unavailable")
	const total = 3
	list := &List{Iterate: func(visit func(*objects.Entry) error) error {
		for n := range total {
			if len(limiter) != 0 {
				t.Errorf("object %d: got the limiter held while it is read, want it free", n)
			}
			if err := visit(nil); err != nil {
				return err
			}
		}
		return failed
	}}
	encoded := 0
	err := out.eachItem(list, func(*objects.Entry) error {
		if want := min(encoded, 1); len(limiter) != want {
			t.Errorf("object %d: got the limiter held %d times while it is encoded, want %d", encoded, len(limiter), want)
		}
		encoded++
		out.buf = append(out.buf, bytes.Repeat([]byte("x"), chunkSize)...)
		return out.flushItem(nil)
	})
	if !errors.Is(err, failed) || encoded != total || recorder.Body.Len() != total*chunkSize {
		t.Errorf("got %d objects, %d bytes, error %v, want %d, %d, %v",
			encoded, recorder.Body.Len(), err, total, total*chunkSize, failed)
	}
}

// TestSlowFormsAreLimited checks that slow forms acquire the limiter for the first object of a
// list and for a single large object.
func TestSlowFormsAreLimited(t *testing.T) {
	limiter := make(channel, 1)
	for _, iterates := range []bool{false, true} {
		out := newChunkWriter(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "text/plain", limiter)
		out.slow = true
		each := func(visit func(*objects.Entry) error) error { return visit(nil) }
		list := &List{Items: []*objects.Entry{objects.Uncached("k", nil)}}
		if iterates {
			list.Iterate = each
		}
		err := out.eachItem(list, func(*objects.Entry) error {
			if len(limiter) != 1 {
				t.Errorf("list with Iterate %t: got the first object encoded without the limiter, want it acquired", iterates)
			}
			return nil
		})
		out.releaseLimiter()
		if err != nil || len(limiter) != 0 {
			t.Errorf("list with Iterate %t: got error %v, the limiter held %d times, want none, 0", iterates, err, len(limiter))
		}
	}
	for _, test := range []struct {
		media string
		size  int
		waits bool
	}{
		{media: api.MediaYAML, size: 2 * largeToFormat, waits: true},
		{media: api.MediaCBOR, size: 2 * largeToFormat, waits: true},
		{media: api.MediaYAML, size: 100},
	} {
		e := &Encoder{Choice: negotiation.Choice{Media: test.media}, writers: &Responses{Slow: slowChannel{limiter}}}
		ctx, cancel := context.WithCancel(t.Context())
		limiter <- struct{}{} // held by another request
		cancel()
		started := false
		ctx = (&requesttest.Work{OnStarted: func() { started = true }}).With(ctx)
		_, err := e.formatLimited(
			httptest.NewRequest("GET", "/", nil).WithContext(ctx),
			[]byte(`{"a":"`+strings.Repeat("x", test.size)+`"}`),
		)
		if errors.Is(err, context.Canceled) != test.waits || started != test.waits {
			t.Errorf("%s of %d bytes: got error %v, started %t, want a wait %t", test.media, test.size, err, started, test.waits)
		}
		<-limiter
		if len(limiter) != 0 {
			t.Errorf("%s of %d bytes: got the limiter held after the end, want it free", test.media, test.size)
		}
	}
}

// recorder records the slices that are written.
type recorder struct {
	*httptest.ResponseRecorder
	writes [][]byte
}

func (w *recorder) Write(b []byte) (int, error) {
	w.writes = append(w.writes, b)
	return w.ResponseRecorder.Write(b)
}

// TestLargeItemsAreNotCopied checks that large items are written without a copy and that encoding
// of the next chunk holds the limiter.
func TestLargeItemsAreNotCopied(t *testing.T) {
	// The sizes are those around the limits from which items are not copied and chunks are sent.
	for _, size := range []int{1, largeItem - 1, largeItem, chunkSize - 1, chunkSize, 3 * chunkSize} {
		limiter := make(channel, 1)
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		out := newChunkWriter(w, httptest.NewRequest("GET", "/", nil), "text/plain", limiter)
		item := bytes.Repeat([]byte("i"), size)
		want := []byte(nil)
		for range 3 {
			out.buf = append(out.buf, "before"...)
			if err := out.writeShared(item); err != nil {
				t.Fatal(err)
			}
			want = append(append(want, "before"...), item...)
		}
		// The limiter is needed from the second chunk on.
		if wantHeld := 3*(size+len("before")) >= chunkSize; len(limiter) == 1 != wantHeld {
			t.Errorf("items of %d bytes: got the limiter held %d times, want it held %t", size, len(limiter), wantHeld)
		}
		if err := out.finish(); err != nil {
			t.Error(err)
		}
		out.releaseLimiter()
		if !bytes.Equal(w.Body.Bytes(), want) {
			t.Errorf("items of %d bytes: got %d bytes, want %d", size, w.Body.Len(), len(want))
		}
		shared := 0
		for _, b := range w.writes {
			if len(b) > 0 && &b[0] == &item[0] {
				shared++
			}
		}
		wantShared := 0
		if size >= largeItem {
			wantShared = 3
		}
		if shared != wantShared {
			t.Errorf("items of %d bytes: got %d written without a copy, want %d", size, shared, wantShared)
		}
	}
}

// TestListFailsWithoutLimiter checks that a list that cannot acquire the limiter in time fails
// with a Status or, after the first chunk, by closing the connection. A disconnected client gets
// nothing.
func TestListFailsWithoutLimiter(t *testing.T) {
	for _, test := range []struct {
		name         string
		slow         bool // the first chunk needs the limiter, so that nothing is written
		disconnected bool
		want         string // error; empty for none
	}{
		{name: "timeout before the first chunk", slow: true, want: "request did not complete within the allotted timeout"},
		{name: "timeout after the first chunk", want: http.ErrAbortHandler.Error()},
		{name: "client disconnects", slow: true, disconnected: true},
		{name: "client disconnects after the first chunk", disconnected: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := make(channel, 1)
				limiter <- struct{}{} // held by another request
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if test.disconnected {
					ctx, cancel = context.WithCancel(t.Context())
					cancel()
				}
				recorder := httptest.NewRecorder()
				out := newChunkWriter(recorder, httptest.NewRequest("GET", "/", nil).WithContext(ctx), "text/plain", limiter)
				out.slow = test.slow
				respond := func() (err error) {
					defer func() {
						if recovered := recover(); recovered != nil {
							err = recovered.(error)
						}
					}()
					list := &List{Items: []*objects.Entry{objects.Uncached("a", nil), objects.Uncached("b", nil)}}
					err = out.eachItem(list, func(*objects.Entry) error {
						out.buf = append(out.buf, bytes.Repeat([]byte("x"), chunkSize)...)
						return out.flushItem(nil)
					})
					if err != nil {
						return out.fail(err)
					}
					return out.finish()
				}
				got := ""
				if err := respond(); err != nil {
					got = err.Error()
				}
				if !strings.Contains(got, test.want) || test.want == "" && got != "" {
					t.Errorf("got error %q, want %q", got, test.want)
				}
				if test.slow && (out.started || recorder.Body.Len() > 0) {
					t.Errorf("got a response of %d bytes, started %t, want none", recorder.Body.Len(), out.started)
				}
			})
		})
	}
}

// TestScanLimiterPauseReacquires checks that each Pause releases and acquires the limiter, and that failures are
// reported as API errors.
func TestScanLimiterPauseReacquires(t *testing.T) {
	limiter := make(channel, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	scanLimiter := (&Responses{Limiter: limiter}).ScanLimiter(ctx)
	for range 3 {
		if len(limiter) > 1 || !scanLimiter.Pause() || len(limiter) != 1 {
			t.Fatalf("after Pause: got the limiter held %d times, error %v, want 1, none", len(limiter), scanLimiter.Err())
		}
	}
	scanLimiter.Release()
	if len(limiter) != 0 {
		t.Error("after Release: got the limiter held, want it free")
	}
	limiter <- struct{}{} // held by another request
	cancel(nil)
	if scanLimiter.Pause() || !errors.Is(scanLimiter.Err(), context.Canceled) {
		t.Errorf("cancelled request: got error %v, want context.Canceled", scanLimiter.Err())
	}
	late, end := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer end()
	scanLimiter = (&Responses{Limiter: limiter}).ScanLimiter(late)
	if scanLimiter.Pause() || !apierrors.IsTimeout(scanLimiter.Err()) {
		t.Errorf("request after its deadline: got error %v, want Timeout", scanLimiter.Err())
	}
	scanLimiter.Release()
	if len(limiter) != 1 {
		t.Error("Release after a failed Pause: got the limiter of another request released, want it held")
	}
}

// TestNilScanLimiterNeverBlocks checks that a nil ScanLimiter never blocks.
func TestNilScanLimiterNeverBlocks(t *testing.T) {
	var s *ScanLimiter
	if paused := s.Pause(); !paused || s.Err() != nil {
		t.Errorf("got Pause %t, error %v, want true, none", paused, s.Err())
	}
	s.Release()
}
