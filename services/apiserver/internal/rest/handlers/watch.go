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
	options, err := parseListOptions(call.Info, true, a.WatchList)
	if err != nil {
		return err
	}
	encoder, err := a.ForStream(call.R, call.resource)
	if err != nil {
		return err
	}
	if err := options.resolveFields(call.Coder); err != nil {
		return err
	}
	if err := options.checkName(call.Info.Name); err != nil {
		return err
	}
	if err := options.resolveRevision(a.NoCache); err != nil {
		return err
	}
	if err := encoder.Err(); err != nil {
		return err
	}

	// 2. Reserve memory for the selectors until the watch ends.
	release, err := a.selectorMemory.reserveMemory(call.Context(), options.LabelSelector, options.FieldSelector)
	if err != nil {
		return err
	}
	defer exchange.AtEnd(call.W, func(any) { release() })

	// 3. Determine where the watch starts. The stream, not the response, reports a revision that is too
	// old.
	watchOptions, err := a.watchOptions(call, options)
	if err == nil {
		err = checkNotGone(call.Store)
	}
	var expired *watchcache.ExpiredError
	if err != nil && !errors.As(err, &expired) {
		return err
	}
	startErr := err

	// 4. Serve the stream until its timeout, the end of the request or the end of the server.
	ctx := streaming.NewLifetime(call.Context(), a.Stopping, call.DefinitionContext, a.watchTimeout(options))
	defer exchange.AtEnd(call.W, func(any) { ctx.Release() })
	watchStream := a.newStream(call, encoder, options)
	watchStream.sendsInitial = watchOptions.Initial == watchcache.InitialState
	watchOptions.OnExpired = watchStream.abortWrite
	if watchStream.sendsInitial {
		watchStream.scan = a.ScanLimiter(ctx)
		watchOptions.Pause = watchStream.scan.Pause
	}
	start := func() (*watchcache.Watcher, error) {
		if startErr != nil {
			return nil, startErr
		}
		defer watchStream.scan.Release()
		return call.startWatcher(options, watchOptions)
	}
	if streaming.IsWebSocket(call.R) {
		watchStream.serveSocket(ctx, start)
		return nil
	}
	return watchStream.serveBody(ctx, start)
}

// newStream returns the stream of a watch.
func (a *API) newStream(call *Call, encoder *responsewriters.Encoder, options *listOptions) *stream {
	return &stream{
		api:             a,
		encoder:         encoder,
		call:            call,
		fields:          options.versionedFields,
		metrics:         a.Metrics.watchMetricsOf(call.Kind),
		bookmarks:       options.AllowWatchBookmarks,
		marksInitialEnd: options.SendInitialEvents != nil && *options.SendInitialEvents,
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
	call := s.call
	defer exchange.AtEnd(call.W, func(any) {
		s.stopBookmarks()
		watcher.Close()
	})
	s.start(ctx)
	// The query is no longer needed, and the watch may last long.
	call.Info.Query = nil
	if !exchange.Detach(call.W, func(end func(failure any)) { s.startPump(ctx, watcher, end) }) {
		s.run(ctx, watcher)
	}
	return nil
}

// startWatcher starts a watcher of the served kind.
func (c *Call) startWatcher(options *listOptions, watchOptions watchcache.WatchOptions) (*watchcache.Watcher, error) {
	watcher, err := c.Store.Watch(watchOptions)
	if errors.Is(err, watchcache.ErrStopped) && c.Custom() {
		return nil, apiset.ErrChanged // another store replaces it
	}
	if err != nil {
		return nil, err
	}
	if err := c.checkSelectable(options, watcher.Variant()); err != nil {
		watcher.Close()
		return nil, err
	}
	return watcher, nil
}

// watchOptions converts the parameters to the start of a watcher.
func (a *API) watchOptions(call *Call, options *listOptions) (watchcache.WatchOptions, error) {
	start := watchcache.WatchOptions{Selection: selectionOf(call, options), AfterRevision: options.revision}
	sendsInitial := options.revision <= 0
	if options.SendInitialEvents != nil {
		sendsInitial = *options.SendInitialEvents
	}
	if options.SendInitialEvents != nil || options.revision < 0 {
		if err := call.waitForCache(call.Context(), options.revision); err != nil {
			return start, err
		}
	}
	switch {
	case sendsInitial:
		start.Initial = watchcache.InitialState
		return start, a.checkSnapshot(call, options, call.Store.Snapshot(), "", nil)
	case options.revision <= 0:
		start.AfterRevision = call.Store.Revision()
		return start, nil
	}
	return start, a.checkHistory(call, options.revision)
}

// checkHistory rejects a start revision beyond the current one if the revision of the store went
// backwards while this server ran: the revision belongs to the previous history. Otherwise the
// watch waits for a future revision, as in Kubernetes.
func (a *API) checkHistory(call *Call, revision int64) error {
	if call.Store.Incarnation() == 0 || revision <= call.Store.Revision() {
		return nil
	}
	ctx, cancel := context.WithTimeout(call.Context(), cacheWait)
	defer cancel()
	resume := request.Suspend(ctx)
	newest, err := call.Store.MostRecent(ctx)
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
func (a *API) watchTimeout(options *listOptions) time.Duration {
	if options.TimeoutSeconds != nil && *options.TimeoutSeconds != 0 {
		return time.Duration(*options.TimeoutSeconds) * time.Second
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
func (s *stream) startPump(ctx *streaming.Lifetime, watcher *watchcache.Watcher, finish func(failure any)) {
	newPump := &pump{stream: s, ctx: ctx, watcher: watcher, finish: finish}
	send := newPump.sendAvailable
	principal := request.Principal(ctx)
	newPump.resume = func() { s.api.workers.Run(principal, send) }
	s.startBookmarks(ctx, watcher)
	ctx.OnEnd(watcher.Trigger)
	newPump.sendAvailable()
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
