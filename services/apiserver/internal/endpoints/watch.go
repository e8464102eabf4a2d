package endpoints

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/watchcache"
)

const (
	// watchBatch is the number of events taken from the cache at a time.
	watchBatch = 64
	// lastBookmark is how long before its timeout a watch gets a bookmark.
	lastBookmark = 2 * time.Second
)

// watch answers GET with the watch parameter (specification: "Watch
// resource-version semantics" and "Streaming initial state").
func (a *API) watch(c *call) error {
	choice, ok := a.Config.Media.AcceptStream(c.r, negotiate.Table, negotiate.PartialObject, negotiate.PartialObjectList)
	if !ok {
		return errNotAcceptable(a.Config.Media.Streams())
	}
	f, err := a.formOf(c, choice)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.r.URL.Query(), c.coder, true, a.WatchList)
	if err != nil {
		return err
	}
	opts, err := a.watchOptions(c, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx(), a.watchTimeout(o))
	defer cancel()
	if a.Stopping != nil {
		defer context.AfterFunc(a.Stopping, cancel)()
	}
	s := &stream{api: a, form: f, call: c, bookmarks: o.AllowWatchBookmarks, initialEnd: o.SendInitialEvents != nil && *o.SendInitialEvents}
	if isWebSocket(c.r) {
		s.serveSocket(ctx, func() (*watchcache.Watcher, error) { return c.store.Watch(opts) })
		return nil
	}
	w, err := c.store.Watch(opts)
	var expired *watchcache.ExpiredError
	if errors.As(err, &expired) {
		// That the version is too old is told in the stream.
		s.open()
		s.fail(expiredVersion(expired.Revision, expired.Oldest))
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Close()
	s.run(ctx, w)
	return nil
}

// watchOptions turns the parameters into a start of a watcher.
func (a *API) watchOptions(c *call, o *listOptions) (watchcache.WatchOptions, error) {
	opts := watchcache.WatchOptions{Selection: selectionOf(c, o), After: o.revision}
	initial := o.revision <= 0
	if o.SendInitialEvents != nil {
		initial = *o.SendInitialEvents
		if err := a.reach(c.ctx(), o.revision); err != nil {
			return opts, err
		}
	} else if o.revision < 0 {
		if err := a.reach(c.ctx(), -1); err != nil {
			return opts, err
		}
	}
	if initial {
		opts.Initial = watchcache.InitialState
	} else if o.revision <= 0 {
		opts.After = a.Cache.Revision()
	}
	return opts, nil
}

// watchTimeout is how long a watch lasts: what the client asks for, else
// between one and two times the least, so that watches do not end together.
func (a *API) watchTimeout(o *listOptions) time.Duration {
	if o.TimeoutSeconds != nil {
		return time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return time.Duration(float64(a.MinRequestTimeout) * (1 + rand.Float64()))
}

// stream writes a watch.
type stream struct {
	api        *API
	form       *form
	call       *call
	flusher    http.Flusher
	socket     *socket // instead of the answer's body
	bookmarks  bool
	initialEnd bool // a bookmark tells the end of the initial state
	first      bool // no event has gone out
	told       int64
	buf        []byte
}

// open sends the headers, so that the client knows that the watch has begun.
func (s *stream) open() {
	s.first = true
	if s.socket != nil {
		return
	}
	h := s.call.w.Header()
	h.Set("Content-Type", s.form.streamType())
	h.Set("Cache-Control", "no-cache, private")
	sendWarnings(s.call.w, s.call.r)
	s.call.w.WriteHeader(http.StatusOK)
	s.flusher, _ = s.call.w.(http.Flusher)
	s.flush()
}

func (s *stream) flush() {
	if s.flusher != nil {
		s.flusher.Flush()
	}
}

// run sends events until the watch ends: by its timeout, by the client, by an
// error, which is told, or by the server's end.
func (s *stream) run(ctx context.Context, w *watchcache.Watcher) {
	deadline, _ := ctx.Deadline()
	// A client that does not read must not hold the request beyond its time.
	if s.socket != nil {
		_ = s.socket.conn.SetWriteDeadline(deadline.Add(lastBookmark))
	} else {
		_ = http.NewResponseController(s.call.w).SetWriteDeadline(deadline.Add(lastBookmark))
	}
	s.open()
	next := s.nextBookmark(time.Now(), deadline)
	var timer *time.Timer
	if s.bookmarks {
		timer = time.AfterFunc(time.Until(next), w.Nudge)
		defer timer.Stop()
	}
	events := make([]watchcache.Event, 0, watchBatch)
	for {
		got, err := w.Next(ctx, events)
		if err != nil {
			s.end(ctx, err)
			return
		}
		if len(got) > 0 && !s.send(got) {
			return
		}
		if now := time.Now(); s.bookmarks && !now.Before(next) {
			if !s.bookmark(w.Revision(), false) {
				return
			}
			next = s.nextBookmark(now, deadline)
			timer.Reset(time.Until(next))
		}
	}
}

func (s *stream) nextBookmark(now, deadline time.Time) time.Time {
	next := now.Add(s.api.BookmarkInterval)
	if last := deadline.Add(-lastBookmark); now.Before(last) && last.Before(next) {
		return last
	}
	return next
}

// end tells why the watch ends, if the client should know.
func (s *stream) end(ctx context.Context, err error) {
	var expired *watchcache.ExpiredError
	switch {
	case errors.As(err, &expired):
		s.fail(expiredVersion(expired.Revision, expired.Oldest))
	case ctx.Err() != nil, errors.Is(err, watchcache.ErrStopped), errors.Is(err, watchcache.ErrClosed):
	default:
		s.fail(err)
	}
}

// fail sends an ERROR event.
func (s *stream) fail(err error) {
	if b, err := s.form.errorFrame(err); err == nil {
		s.write(b)
	}
}

// send writes all events at hand at once.
func (s *stream) send(events []watchcache.Event) bool {
	if len(events) == 1 && events[0].Type != watchcache.Bookmark {
		if frame, ok := s.form.sharedEvent(eventType(events[0].Type), shownEntry(events[0].Entry)); ok {
			s.first = false
			s.form.sent.sent(len(frame))
			return s.write(frame)
		}
	}
	s.buf = s.buf[:0]
	for _, e := range events {
		if e.Type == watchcache.Bookmark {
			if s.initialEnd && s.bookmarks {
				b, err := s.form.bookmark(e.Revision, true)
				if err != nil {
					s.fail(err)
					return false
				}
				s.buf = append(s.buf, b...)
				if s.socket != nil {
					if !s.write(s.buf) {
						return false
					}
					s.buf = s.buf[:0]
				}
			}
			continue
		}
		var err error
		before := len(s.buf)
		if s.buf, err = s.form.appendEvent(s.buf, eventType(e.Type), shownEntry(e.Entry), s.first); err != nil {
			s.fail(err)
			return false
		}
		s.first = false
		s.form.sent.sent(len(s.buf) - before)
		if len(s.buf) >= pieceSize || s.socket != nil {
			if !s.write(s.buf) {
				return false
			}
			s.buf = s.buf[:0]
		}
	}
	ok := len(s.buf) == 0 || s.write(s.buf)
	if cap(s.buf) > 4<<10 {
		s.buf = nil // an idle watch holds little
	}
	return ok
}

func (s *stream) bookmark(revision int64, initialEnd bool) bool {
	if revision <= s.told {
		return true
	}
	s.told = revision
	b, err := s.form.bookmark(revision, initialEnd)
	if err != nil {
		return false
	}
	return s.write(b)
}

func (s *stream) write(b []byte) bool {
	if s.socket != nil {
		return s.socket.write(b) == nil
	}
	if _, err := s.call.w.Write(b); err != nil {
		return false
	}
	s.flush()
	return s.call.r.Context().Err() == nil
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
