package handlers

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/net/websocket"

	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/streaming"
	"binnacle/services/apiserver/internal/status"
)

// watch serves GET with the watch parameter (specification: "Watch resource-version semantics" and
// "Streaming initial state").
func (a *API) watch(call *Call) error {
	// 1. Parse the parameters.
	o, err := parseListOptions(call.Info, true, a.WatchList)
	if err != nil {
		return err
	}
	encoder, err := a.ForStream(call.R, call.resource)
	if err != nil {
		return err
	}
	if err := o.resolveFields(call.Coder); err != nil {
		return err
	}
	if err := o.checkName(call.Info.Name); err != nil {
		return err
	}
	if err := o.resolveVersion(a.NoCache); err != nil {
		return err
	}
	if err := encoder.Err(); err != nil {
		return err
	}

	// 2. Reserve memory for the selectors until the watch ends.
	release, err := a.selectorMemory.reserveMemory(call.Context(), o.LabelSelector, o.FieldSelector)
	if err != nil {
		return err
	}
	defer exchange.AtEnd(call.W, func(any) { release() })

	// 3. Determine where the watch starts. The stream, not the response, reports a version that is too
	// old.
	opts, err := a.watchOptions(call, o)
	if err == nil {
		err = checkNotGone(call.Store)
	}
	var expired *watchcache.ExpiredError
	if err != nil && !errors.As(err, &expired) {
		return err
	}
	startErr := err

	// 4. Serve the stream until its timeout, the end of the request or the end of the server.
	ctx := streaming.NewLifetime(call.Context(), a.Stopping, call.DefinitionContext, a.watchTimeout(o))
	defer exchange.AtEnd(call.W, func(any) { ctx.Release() })
	s := a.newStream(call, encoder, o)
	s.sendsInitial = opts.Initial == watchcache.InitialState
	opts.OnExpired = s.abortWrite
	if s.sendsInitial {
		s.scan = a.ScanLimiter(ctx)
		opts.Pause = s.scan.Pause
	}
	start := func() (*watchcache.Watcher, error) {
		if startErr != nil {
			return nil, startErr
		}
		defer s.scan.Release()
		return call.startWatcher(o, opts)
	}
	if streaming.IsWebSocket(call.R) {
		s.serveSocket(ctx, start)
		return nil
	}
	return s.serveBody(ctx, start)
}

// newStream returns the stream of a watch.
func (a *API) newStream(c *Call, encoder *responsewriters.Encoder, o *listOptions) *stream {
	return &stream{
		api:             a,
		encoder:         encoder,
		call:            c,
		fields:          o.versionedFields,
		metrics:         a.Metrics.watchMetricsOf(c.Kind),
		bookmarks:       o.AllowWatchBookmarks,
		marksInitialEnd: o.SendInitialEvents != nil && *o.SendInitialEvents,
	}
}

// serveBody runs a watch over the response body. start opens the watcher. A watch that can be
// detached outlives the handler.
func (s *stream) serveBody(ctx *streaming.Lifetime, start func() (*watchcache.Watcher, error)) error {
	watcher, err := start()
	var expired *watchcache.ExpiredError
	if errors.As(err, &expired) {
		s.sendHeaders()
		s.sendError(status.ExpiredVersion(expired.Revision, expired.OldestRevision))
		return nil
	}
	if err != nil {
		return err
	}
	c := s.call
	defer exchange.AtEnd(c.W, func(any) {
		s.stopBookmarks()
		watcher.Close()
	})
	s.start(ctx)
	// The query is no longer needed, and the watch may last long.
	c.Info.Query = nil
	if !exchange.Detach(c.W, func(end func(failure any)) { s.startPump(ctx, watcher, end) }) {
		s.run(ctx, watcher)
	}
	return nil
}

// startWatcher starts a watcher of the served kind.
func (c *Call) startWatcher(o *listOptions, opts watchcache.WatchOptions) (*watchcache.Watcher, error) {
	w, err := c.Store.Watch(opts)
	if errors.Is(err, watchcache.ErrStopped) && c.Custom() {
		return nil, apiset.ErrChanged // another store replaces it
	}
	if err != nil {
		return nil, err
	}
	if err := c.checkSelectable(o, w.Variant()); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// watchOptions converts the parameters to the start of a watcher.
func (a *API) watchOptions(call *Call, o *listOptions) (watchcache.WatchOptions, error) {
	opts := watchcache.WatchOptions{Selection: selectionOf(call, o), AfterRevision: o.revision}
	sendsInitial := o.revision <= 0
	if o.SendInitialEvents != nil {
		sendsInitial = *o.SendInitialEvents
	}
	if o.SendInitialEvents != nil || o.revision < 0 {
		if err := call.waitForVersion(call.Context(), o.revision); err != nil {
			return opts, err
		}
	}
	switch {
	case sendsInitial:
		opts.Initial = watchcache.InitialState
		return opts, a.checkSnapshot(call, o, call.Store.Snapshot(), "", nil)
	case o.revision <= 0:
		opts.AfterRevision = call.Store.Revision()
		return opts, nil
	}
	return opts, a.checkHistory(call, o.revision)
}

// checkHistory rejects a start revision beyond the current one if the revision of the store went
// backwards while this server ran: the revision belongs to the previous history. Otherwise the
// watch waits for a future revision, as in Kubernetes.
func (a *API) checkHistory(c *Call, revision int64) error {
	if c.Store.Incarnation() == 0 || revision <= c.Store.Revision() {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), cacheWait)
	defer cancel()
	resume := request.Suspend(ctx)
	newest, err := c.Store.MostRecent(ctx)
	resume()
	if err != nil {
		return consistentReadError(ctx, err)
	}
	if newest < revision {
		return &watchcache.ExpiredError{Revision: revision, OldestRevision: newest}
	}
	return nil
}

// watchTimeout returns the timeout of a watch. The client may set it; a negative one closes the
// watch immediately. By default it is random, between one and two times MinRequestTimeout, so that
// watches do not end together.
func (a *API) watchTimeout(o *listOptions) time.Duration {
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds != 0 {
		return time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return time.Duration(float64(a.MinRequestTimeout) * (1 + rand.Float64()))
}

// serveSocket runs a watch over WebSocket. start opens the watcher; the stream reports its error.
// As in Kubernetes, the client must send an Origin header, and any origin is accepted: clients
// authenticate by certificate or token, so a foreign page gains nothing.
func (s *stream) serveSocket(ctx context.Context, start func() (*watchcache.Watcher, error)) {
	websocket.Handler(func(conn *websocket.Conn) {
		defer conn.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.socket = streaming.NewSocket(conn, s.encoder.IsBinary(), s.encoder.FrameHeader())
		watcher, err := start()
		if errors.Is(err, apiset.ErrChanged) {
			err = status.Reloading()
		}
		if err != nil {
			s.sendFinalError(ctx, err)
			return
		}
		defer watcher.Close()
		defer s.stopBookmarks()
		s.start(ctx)
		disconnected := make(chan struct{})
		go func() { // the client sends nothing; the read ends when it disconnects
			defer close(disconnected)
			_, _ = io.Copy(io.Discard, conn)
			cancel()
		}()
		s.run(ctx, watcher)
		_ = conn.Close()
		<-disconnected
	}).ServeHTTP(s.call.W, s.call.R)
}

// pump sends the events of a stream that outlives its handler. While it has no events to send, it
// uses neither a goroutine nor buffers.
type pump struct {
	*stream
	ctx     context.Context
	watcher *watchcache.Watcher
	resume  func()            // calls sendAvailable in another goroutine
	finish  func(failure any) // finishes the response; failure is the value of a panic, or nil
}

// startPump sends events until the watch ends, partly after it has returned. finish is then called
// with the value of a panic, or nil.
func (s *stream) startPump(ctx *streaming.Lifetime, w *watchcache.Watcher, finish func(failure any)) {
	p := &pump{stream: s, ctx: ctx, watcher: w, finish: finish}
	send := p.sendAvailable
	principal := request.Principal(ctx)
	p.resume = func() { s.api.workers.Run(principal, send) }
	s.startBookmarks(ctx, w)
	ctx.OnEnd(w.Trigger)
	p.sendAvailable()
}

// sendAvailable sends the available events and returns. It parks the pump if there are none.
func (p *pump) sendAvailable() {
	parked := false // if it is true, another goroutine may already run the pump
	defer func() {
		if !parked {
			p.scan.Release()
			p.finish(exchange.Failed(recover()))
		}
	}()
	buffers := pumpBuffers.Get().(*pumpBuffer)
	for {
		events, ok, err := p.watcher.Poll(p.ctx, buffers.events, p.resume)
		if !ok {
			parked = true
			pumpBuffers.Put(buffers)
			return
		}
		p.buf = buffers.buf
		open := p.handleEvents(p.ctx, p.watcher, events, err)
		buffers.buf = p.buf[:0]
		p.buf = nil
		if !open {
			clear(buffers.events[:cap(buffers.events)])
			pumpBuffers.Put(buffers)
			return
		}
	}
}

// pumpBuffer holds the buffers of a running pump. Buffers in the pool hold no events.
type pumpBuffer struct {
	events []watchcache.Event
	buf    []byte
}

var pumpBuffers = sync.Pool{New: func() any { return &pumpBuffer{events: make([]watchcache.Event, 0, maxBatch)} }}
