package handlers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/streaming"
	"binnacle/services/apiserver/internal/status"
)

const (
	// watchBatch is the number of events taken from the cache at a time.
	watchBatch = 64
	// BookmarkInterval is the time between bookmarks of a watch.
	BookmarkInterval = time.Minute
	// lastBookmark is how long before its timeout a watch sends a last bookmark.
	lastBookmark = 2 * time.Second
	// eventsAtOnce is the buffer size in bytes from which events are written.
	eventsAtOnce = 64 << 10
)

// stream writes the events of a watch.
type stream struct {
	api        *API
	form       *responsewriters.Encoder
	fields     fields.Selector // selector on the requested version; nil if the cache evaluates all fields
	call       *Call
	metrics    watchMetrics
	socket     *streaming.Socket // replaces the response body
	bookmarks  bool
	initial    bool                         // the watch starts with the initial state
	scan       *responsewriters.ScanLimiter // limits the search for the initial state
	initialEnd bool                         // a bookmark marks the end of the initial state
	first      bool                         // no event has been sent
	reported   int64                        // the revision of the last bookmark
	next       time.Time                    // time of the next bookmark
	timer      *time.Timer                  // for next; nil without bookmarks
	buf        []byte
	lost       atomic.Bool // its position in the history is lost
}

// open sends the headers, which tell the client that the watch has started.
func (s *stream) open() {
	s.first = true
	if s.socket != nil {
		return
	}
	h := s.call.W.Header()
	h.Set("Content-Type", s.form.StreamType())
	h.Set("Cache-Control", "no-cache, private")
	responsewriters.SendWarnings(s.call.W, s.call.R)
	s.call.W.WriteHeader(http.StatusOK)
	if f, ok := s.call.W.(http.Flusher); ok {
		f.Flush()
	}
}

// begin opens a stream that ends with ctx.
func (s *stream) begin(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	// A client that does not read must not hold the request beyond its timeout.
	s.writeUntil(deadline.Add(lastBookmark))
	s.open()
	if !s.initial {
		request.Started(ctx)
	}
}

// run sends events until the watch ends.
func (s *stream) run(ctx context.Context, w *watchcache.Watcher) {
	s.startBookmarks(ctx, w)
	defer s.scan.End()
	events := make([]watchcache.Event, 0, watchBatch)
	for {
		got, err := w.Next(ctx, events)
		if !s.step(ctx, w, got, err) {
			return
		}
	}
}

// step sends the events that it got. It returns false when the watch ends: by its timeout, by the
// client, by an error, which it sends, or because the server stops.
func (s *stream) step(ctx context.Context, w *watchcache.Watcher, got []watchcache.Event, err error) bool {
	s.scan.End()
	if err != nil {
		s.end(ctx, err)
		return false
	}
	more := len(got) > 0
	if more && s.fields != nil {
		if got, err = s.selected(ctx, got); err != nil {
			s.end(ctx, err)
			return false
		}
	}
	if more {
		if len(got) > 0 && !s.send(ctx, got) {
			return false
		}
		if waited, ok := w.OldestChangeAge(); ok {
			s.metrics.delivered(waited)
		}
	}
	if slices.ContainsFunc(got, func(e watchcache.Event) bool { return e.Type == watchcache.Bookmark }) {
		request.Started(ctx) // the initial state has been sent
	}
	if now := time.Now(); s.bookmarks && !now.Before(s.next) {
		if !s.bookmark(w.Revision(), false) {
			return false
		}
		s.next = s.nextBookmark(ctx, now)
		s.timer.Reset(time.Until(s.next))
	}
	return true
}

// startBookmarks starts the timer that wakes the watcher when a bookmark is due.
func (s *stream) startBookmarks(ctx context.Context, w *watchcache.Watcher) {
	if s.bookmarks {
		s.next = s.nextBookmark(ctx, time.Now())
		s.timer = time.AfterFunc(time.Until(s.next), w.Trigger)
	}
}

func (s *stream) stopBookmarks() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// writeUntil sets the deadline of later writes and of a write in progress.
func (s *stream) writeUntil(t time.Time) {
	set := http.NewResponseController(s.call.W).SetWriteDeadline
	if s.socket != nil {
		set = s.socket.SetWriteDeadline
	}
	_ = set(t) // without a deadline, the write ends with the connection
	if s.lost.Load() {
		_ = set(time.Now())
	}
}

// abort ends the stream in the middle of a write: the client does not read, and its position in the
// history is lost. The watch cache calls it.
func (s *stream) abort() {
	s.lost.Store(true)
	s.writeUntil(time.Now())
}

func (s *stream) nextBookmark(ctx context.Context, now time.Time) time.Time {
	deadline, _ := ctx.Deadline()
	next := now.Add(s.api.BookmarkInterval)
	if last := deadline.Add(-lastBookmark); now.Before(last) && last.Before(next) {
		return last
	}
	return next
}

// end sends the error that ends the watch, if the client should see it.
func (s *stream) end(ctx context.Context, err error) {
	var expired *watchcache.ExpiredError
	switch {
	case errors.As(err, &expired):
		s.fail(status.ExpiredVersion(expired.Revision, expired.OldestRevision))
	case ctx.Err() != nil, errors.Is(err, watchcache.ErrStopped), errors.Is(err, watchcache.ErrClosed):
	default:
		s.fail(err)
	}
}

// fail sends an ERROR event.
func (s *stream) fail(err error) {
	if b, err := s.form.ErrorFrame(err); err == nil {
		s.write(b)
	}
}

// send writes all events, in few writes. It returns false if the watch has ended.
func (s *stream) send(ctx context.Context, events []watchcache.Event) bool {
	if s.form.Representation == negotiation.PartialObjectList { // an event holds no list, so the first one ends the watch
		return false
	}
	defer s.form.Finish()
	if err := s.prepare(ctx, events); err != nil {
		s.end(ctx, err)
		return false
	}
	if len(events) == 1 && events[0].Type != watchcache.Bookmark {
		if frame, ok := s.form.SharedEvent(eventType(events[0].Type), s.form.Entry(events[0].Entry)); ok {
			return s.sendFrame(frame)
		}
	}
	s.buf = s.buf[:0]
	for _, e := range events {
		ok := false
		if e.Type == watchcache.Bookmark {
			ok = s.appendInitialEnd(e.Revision)
		} else {
			ok = s.appendEvent(e)
		}
		if !ok {
			return false
		}
	}
	ok := s.flush()
	if cap(s.buf) > 4<<10 {
		s.buf = nil // an idle watch holds little memory
	}
	return ok
}

// sendFrame writes an encoded event that other watches share. It returns false if the watch has
// ended.
func (s *stream) sendFrame(frame []byte) bool {
	s.first = false
	s.metrics.sent(len(frame))
	return s.write(frame)
}

// appendInitialEnd appends the bookmark that marks the end of the initial state, if the client
// asked for it. It returns false if the watch has ended.
func (s *stream) appendInitialEnd(revision int64) bool {
	if !s.initialEnd || !s.bookmarks {
		return true
	}
	b, err := s.form.Bookmark(revision, true)
	if err != nil {
		s.fail(err)
		return false
	}
	s.buf = append(s.buf, b...)
	return s.socket == nil || s.flush()
}

// appendEvent appends an event to the buffer and writes the buffer when it is large. A large
// encoded event that watches share is written without a copy. It returns false if the watch has
// ended.
func (s *stream) appendEvent(e watchcache.Event) bool {
	frame, ok := s.form.SharedEvent(eventType(e.Type), s.form.Entry(e.Entry))
	if ok && len(frame) >= eventsAtOnce && s.socket == nil {
		return s.flush() && s.sendFrame(frame)
	}
	before := len(s.buf)
	b, err := s.form.AppendEvent(s.buf, eventType(e.Type), s.form.Entry(e.Entry), s.first)
	if err != nil {
		s.fail(err)
		return false
	}
	s.buf = b
	s.first = false
	s.metrics.sent(len(s.buf) - before)
	if len(s.buf) < eventsAtOnce && s.socket == nil {
		return true
	}
	return s.flush()
}

// flush writes the buffer. It returns false if the watch has ended.
func (s *stream) flush() bool {
	if len(s.buf) == 0 {
		return true
	}
	ok := s.write(s.buf)
	s.buf = s.buf[:0]
	return ok
}

// selected applies the selector on the requested version to events. An object that starts to match
// is Added, one that stops to match is Deleted.
func (s *stream) selected(ctx context.Context, events []watchcache.Event) ([]watchcache.Event, error) {
	var entries []*objects.Entry
	for _, e := range events {
		if e.Type != watchcache.Bookmark {
			entries = append(entries, e.Entry)
		}
		if e.Previous != nil {
			entries = append(entries, e.Previous)
		}
	}
	matches, err := s.form.Matching(ctx, entries, s.fields)
	if err != nil {
		return nil, err
	}
	out := events[:0]
	for _, e := range events {
		selected := e.Type == watchcache.Bookmark || matches[e.Entry]
		if e.Type == watchcache.Modified {
			before := matches[e.Previous]
			if selected && !before {
				e.Type = watchcache.Added
			}
			if before && !selected {
				e.Type = watchcache.Deleted
				e.Entry = e.Previous
				selected = true
			}
		}
		if selected {
			out = append(out, e)
		}
	}
	return out, nil
}

// prepare converts the objects of events if a webhook converts them to the version of the watch.
func (s *stream) prepare(ctx context.Context, events []watchcache.Event) error {
	if !s.form.Converts() {
		return nil
	}
	entries := make([]*objects.Entry, 0, len(events))
	for i := range events {
		if events[i].Type != watchcache.Bookmark {
			entries = append(entries, events[i].Entry)
		}
	}
	return s.form.Prepare(ctx, entries)
}

// bookmark sends a bookmark unless a revision that is not older was reported. It returns false if
// the watch has ended.
func (s *stream) bookmark(revision int64, initialEnd bool) bool {
	if revision <= s.reported {
		return true
	}
	s.reported = revision
	b, err := s.form.Bookmark(revision, initialEnd)
	if err != nil {
		return false
	}
	return s.write(b)
}

// write writes encoded events. It returns false if the client is gone.
func (s *stream) write(b []byte) bool {
	if s.socket != nil {
		return s.socket.Write(b) == nil
	}
	if err := exchange.Send(s.call.W, b); err != nil {
		return false
	}
	return s.call.R.Context().Err() == nil
}

func eventType(t watchcache.EventType) codec.EventType {
	switch t {
	case watchcache.Added:
		return codec.Added
	case watchcache.Modified:
		return codec.Modified
	}
	return codec.Deleted
}

// pump sends the events of a stream that outlives its handler. While it has no events to send, it
// uses neither a goroutine nor buffers.
type pump struct {
	*stream
	ctx     context.Context
	watcher *watchcache.Watcher
	resume  func()            // continues in a goroutine
	end     func(failure any) // ends the response
}

// pump sends events until the watch ends.
func (s *stream) pump(ctx *streaming.Lifetime, w *watchcache.Watcher, end func(failure any)) {
	p := &pump{stream: s, ctx: ctx, watcher: w, end: end}
	work := p.work
	principal := request.Principal(ctx)
	p.resume = func() { s.api.workers.Run(principal, work) }
	s.startBookmarks(ctx, w)
	ctx.OnEnd(w.Trigger)
	p.work()
}

// work sends the available events and returns.
func (p *pump) work() {
	parked := false // then another goroutine may already run the pump
	defer func() {
		if !parked {
			p.scan.End()
			p.end(exchange.Failed(recover()))
		}
	}()
	pumpBuffer := pumpBuffers.Get().(*pumpBuffer)
	for {
		got, ok, err := p.watcher.Poll(p.ctx, pumpBuffer.events, p.resume)
		if !ok {
			parked = true
			pumpBuffers.Put(pumpBuffer)
			return
		}
		p.buf = pumpBuffer.buf
		open := p.step(p.ctx, p.watcher, got, err)
		pumpBuffer.buf = p.buf[:0]
		p.buf = nil
		if !open {
			clear(pumpBuffer.events[:cap(pumpBuffer.events)])
			pumpBuffers.Put(pumpBuffer)
			return
		}
	}
}

// pumpBuffer holds the buffers of a running pump. Buffers in the pool hold no events.
type pumpBuffer struct {
	events []watchcache.Event
	buf    []byte
}

var pumpBuffers = sync.Pool{New: func() any { return &pumpBuffer{events: make([]watchcache.Event, 0, watchBatch)} }}
