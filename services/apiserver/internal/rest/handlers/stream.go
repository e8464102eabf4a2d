package handlers

import (
	"context"
	"errors"
	"net/http"
	"slices"
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
	// maxBatch is the number of events taken from the cache at a time.
	maxBatch = 64
	// BookmarkInterval is the time between bookmarks of a watch.
	BookmarkInterval = time.Minute
	// finalBookmarkLead is how long before its timeout a watch sends a last bookmark.
	finalBookmarkLead = 2 * time.Second
	// flushSize is the buffer size in bytes from which events are written.
	flushSize = 64 << 10
	// maxIdleBuffer is the maximum size in bytes of the buffer that an idle watch keeps.
	maxIdleBuffer = 4 << 10
)

// stream writes the events of a watch.
type stream struct {
	api              *API
	encoder          *responsewriters.Encoder
	fields           fields.Selector // selector on the requested version; nil if the cache evaluates all fields
	call             *Call
	metrics          watchMetrics
	socket           *streaming.Socket            // replaces the response body; may be nil
	bookmarks        bool                         // the client allows bookmarks
	sendsInitial     bool                         // the watch starts with the initial state
	scan             *responsewriters.ScanLimiter // limits the search for the initial state
	marksInitialEnd  bool                         // a bookmark marks the end of the initial state
	noEventSent      bool                         // no event has been sent yet
	lastBookmark     int64                        // the revision of the last bookmark
	nextBookmarkTime time.Time                    // time of the next bookmark
	bookmarkTimer    *time.Timer                  // for nextBookmarkTime; nil without bookmarks
	buf              []byte                       // encoded events that are not written yet
	positionLost     atomic.Bool                  // the watcher's position in the history is lost
}

// sendHeaders sends the headers, which tell the client that the watch has started.
func (s *stream) sendHeaders() {
	s.noEventSent = true
	if s.socket != nil {
		return
	}
	header := s.call.W.Header()
	header.Set("Content-Type", s.encoder.StreamType())
	header.Set("Cache-Control", "no-cache, private")
	responsewriters.SendWarnings(s.call.W, s.call.R)
	s.call.W.WriteHeader(http.StatusOK)
	if f, ok := s.call.W.(http.Flusher); ok {
		f.Flush()
	}
}

// start opens a stream that ends with ctx.
func (s *stream) start(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	// A client that does not read must not hold the request beyond its timeout.
	s.writeUntil(deadline.Add(finalBookmarkLead))
	s.sendHeaders()
	if !s.sendsInitial {
		request.Started(ctx)
	}
}

// run sends events until the watch ends.
func (s *stream) run(ctx context.Context, watcher *watchcache.Watcher) {
	s.startBookmarks(ctx, watcher)
	defer s.scan.Release()
	events := make([]watchcache.Event, 0, maxBatch)
	for {
		received, err := watcher.Next(ctx, events)
		if !s.handleEvents(ctx, watcher, received, err) {
			return
		}
	}
}

// handleEvents sends the events that the watcher returned, and bookmarks that are due. It returns
// false when the watch ends: by its timeout, by the client, by an error, which it sends, or because
// the server stops.
func (s *stream) handleEvents(ctx context.Context, watcher *watchcache.Watcher, events []watchcache.Event, err error) bool {
	s.scan.Release()
	if err != nil {
		s.sendFinalError(ctx, err)
		return false
	}
	// 1. Send the events, and measure their delay.
	hasEvents := len(events) > 0
	if hasEvents && s.fields != nil {
		if events, err = s.filterByFields(ctx, events); err != nil {
			s.sendFinalError(ctx, err)
			return false
		}
	}
	if hasEvents {
		if len(events) > 0 && !s.sendEvents(ctx, events) {
			return false
		}
		if age, ok := watcher.OldestChangeAge(); ok {
			s.metrics.recordDelay(age)
		}
	}
	if slices.ContainsFunc(events, func(e watchcache.Event) bool { return e.Type == watchcache.Bookmark }) {
		request.Started(ctx) // the initial state has been sent
	}
	// 2. Send a bookmark if one is due.
	if now := time.Now(); s.bookmarks && !now.Before(s.nextBookmarkTime) {
		if !s.sendBookmark(watcher.Revision()) {
			return false
		}
		s.nextBookmarkTime = s.nextBookmarkAfter(ctx, now)
		s.bookmarkTimer.Reset(time.Until(s.nextBookmarkTime))
	}
	return true
}

// startBookmarks starts the timer that wakes the watcher when a bookmark is due.
func (s *stream) startBookmarks(ctx context.Context, watcher *watchcache.Watcher) {
	if s.bookmarks {
		s.nextBookmarkTime = s.nextBookmarkAfter(ctx, time.Now())
		s.bookmarkTimer = time.AfterFunc(time.Until(s.nextBookmarkTime), watcher.Trigger)
	}
}

// stopBookmarks stops the timer of startBookmarks.
func (s *stream) stopBookmarks() {
	if s.bookmarkTimer != nil {
		s.bookmarkTimer.Stop()
	}
}

// writeUntil sets the deadline of later writes and of a write in progress.
func (s *stream) writeUntil(deadline time.Time) {
	setDeadline := http.NewResponseController(s.call.W).SetWriteDeadline
	if s.socket != nil {
		setDeadline = s.socket.SetWriteDeadline
	}
	_ = setDeadline(deadline) // without a deadline, the write ends with the connection
	if s.positionLost.Load() {
		_ = setDeadline(time.Now())
	}
}

// abortWrite closes the stream in the middle of a write: the client does not read, and the
// watcher's position in the history is lost. The watch cache calls it.
func (s *stream) abortWrite() {
	s.positionLost.Store(true)
	s.writeUntil(time.Now())
}

// nextBookmarkAfter returns the time of the bookmark after now: one interval later, or shortly
// before the timeout of the watch.
func (s *stream) nextBookmarkAfter(ctx context.Context, now time.Time) time.Time {
	deadline, _ := ctx.Deadline()
	next := now.Add(s.api.BookmarkInterval)
	if last := deadline.Add(-finalBookmarkLead); now.Before(last) && last.Before(next) {
		return last
	}
	return next
}

// sendFinalError sends the error that ended the watch, if the client should see it.
func (s *stream) sendFinalError(ctx context.Context, err error) {
	var expired *watchcache.ExpiredError
	switch {
	case errors.As(err, &expired):
		s.sendError(status.ExpiredVersion(expired.Revision, expired.OldestRevision))
	case ctx.Err() != nil, errors.Is(err, watchcache.ErrStopped), errors.Is(err, watchcache.ErrClosed):
	default:
		s.sendError(err)
	}
}

// sendError sends an ERROR event.
func (s *stream) sendError(err error) {
	if frame, err := s.encoder.ErrorFrame(err); err == nil {
		s.writeBytes(frame)
	}
}

// sendEvents writes all events, in few writes. It returns false if the watch has ended.
func (s *stream) sendEvents(ctx context.Context, events []watchcache.Event) bool {
	if s.encoder.Representation == negotiation.PartialObjectList {
		return false // no event has this form, so the first event closes the watch
	}
	defer s.encoder.ReleaseConverted()
	if err := s.convertObjects(ctx, events); err != nil {
		s.sendFinalError(ctx, err)
		return false
	}
	// 1. Send the kept encoding of a single event without a copy.
	if len(events) == 1 && events[0].Type != watchcache.Bookmark {
		if frame, ok := s.encoder.SharedEvent(eventType(events[0].Type), s.encoder.EncodableOf(events[0].Entry)); ok {
			return s.sendFrame(frame)
		}
	}
	// 2. Otherwise collect the events in the buffer.
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
	ok := s.flushBuffer()
	if cap(s.buf) > maxIdleBuffer {
		s.buf = nil
	}
	return ok
}

// sendFrame writes an encoded event that other watches share. It returns false if the watch has
// ended.
func (s *stream) sendFrame(frame []byte) bool {
	s.noEventSent = false
	s.metrics.recordEvent(len(frame))
	return s.writeBytes(frame)
}

// appendInitialEnd appends the bookmark that marks the end of the initial state, if the client
// asked for it. It returns false if the watch has ended.
func (s *stream) appendInitialEnd(revision int64) bool {
	if !s.marksInitialEnd || !s.bookmarks {
		return true
	}
	frame, err := s.encoder.Bookmark(revision, true /* initialEnd */)
	if err != nil {
		s.sendError(err)
		return false
	}
	s.buf = append(s.buf, frame...)
	return s.socket == nil || s.flushBuffer()
}

// appendEvent appends an event to the buffer and writes the buffer when it is large. A large
// encoded event that watches share is written without a copy. It returns false if the watch has
// ended.
func (s *stream) appendEvent(event watchcache.Event) bool {
	frame, ok := s.encoder.SharedEvent(eventType(event.Type), s.encoder.EncodableOf(event.Entry))
	if ok && len(frame) >= flushSize && s.socket == nil {
		return s.flushBuffer() && s.sendFrame(frame)
	}
	before := len(s.buf)
	extended, err := s.encoder.AppendEvent(s.buf, eventType(event.Type), s.encoder.EncodableOf(event.Entry), s.noEventSent)
	if err != nil {
		s.sendError(err)
		return false
	}
	s.buf = extended
	s.noEventSent = false
	s.metrics.recordEvent(len(s.buf) - before)
	if len(s.buf) < flushSize && s.socket == nil {
		return true
	}
	return s.flushBuffer()
}

// flushBuffer writes the buffer. It returns false if the watch has ended.
func (s *stream) flushBuffer() bool {
	if len(s.buf) == 0 {
		return true
	}
	ok := s.writeBytes(s.buf)
	s.buf = s.buf[:0]
	return ok
}

// filterByFields applies the selector on the requested version to events. An object that starts to
// match is Added, one that stops to match is Deleted.
func (s *stream) filterByFields(ctx context.Context, events []watchcache.Event) ([]watchcache.Event, error) {
	// 1. Find out which of the current and previous objects match.
	var entries []*objects.Entry
	for _, event := range events {
		if event.Type != watchcache.Bookmark {
			entries = append(entries, event.Entry)
		}
		if event.Previous != nil {
			entries = append(entries, event.Previous)
		}
	}
	matches, err := s.encoder.MatchServed(ctx, entries, s.fields)
	if err != nil {
		return nil, err
	}
	// 2. Keep the events of objects that match now or matched before.
	out := events[:0]
	for _, event := range events {
		selected := event.Type == watchcache.Bookmark || matches[event.Entry]
		if event.Type == watchcache.Modified {
			wasSelected := matches[event.Previous]
			if selected && !wasSelected {
				event.Type = watchcache.Added
			}
			if wasSelected && !selected {
				event.Type = watchcache.Deleted
				event.Entry = event.Previous
				selected = true
			}
		}
		if selected {
			out = append(out, event)
		}
	}
	return out, nil
}

// convertObjects converts the objects of events if a webhook converts them to the version of the
// watch.
func (s *stream) convertObjects(ctx context.Context, events []watchcache.Event) error {
	if !s.encoder.NeedsConversion() {
		return nil
	}
	entries := make([]*objects.Entry, 0, len(events))
	for i := range events {
		if events[i].Type != watchcache.Bookmark {
			entries = append(entries, events[i].Entry)
		}
	}
	return s.encoder.ConvertEntries(ctx, entries)
}

// sendBookmark sends a bookmark unless the last one had this revision or a newer one. It returns false
// if the watch has ended.
func (s *stream) sendBookmark(revision int64) bool {
	if revision <= s.lastBookmark {
		return true
	}
	s.lastBookmark = revision
	frame, err := s.encoder.Bookmark(revision, false /* initialEnd */)
	if err != nil {
		return false
	}
	return s.writeBytes(frame)
}

// writeBytes writes encoded events. It returns false if the client is gone.
func (s *stream) writeBytes(frames []byte) bool {
	if s.socket != nil {
		return s.socket.Write(frames) == nil
	}
	if err := exchange.Send(s.call.W, frames); err != nil {
		return false
	}
	return s.call.R.Context().Err() == nil
}

// eventType converts the type of an event of the cache to the type that clients see.
func eventType(cacheType watchcache.EventType) codec.EventType {
	switch cacheType {
	case watchcache.Added:
		return codec.Added
	case watchcache.Modified:
		return codec.Modified
	}
	return codec.Deleted
}
