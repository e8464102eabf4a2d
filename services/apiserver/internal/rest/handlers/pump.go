package handlers

import (
	"context"
	"sync"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
)

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
func (s *stream) pump(ctx *lifetime, w *watchcache.Watcher, end func(failure any)) {
	p := &pump{stream: s, ctx: ctx, watcher: w, end: end}
	work := p.work
	asker := request.Principal(ctx)
	p.resume = func() { s.api.workers.run(asker, work) }
	s.startBookmarks(ctx, w)
	ctx.onEnd(w.Nudge)
	p.work()
}

// work sends the available events and returns.
func (p *pump) work() {
	parked := false // then another goroutine may already run the pump
	defer func() {
		if !parked {
			p.scan.End()
			p.end(serving.Failed(recover()))
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
		goesOn := p.step(p.ctx, p.watcher, got, err)
		if pumpBuffer.buf, p.buf = p.buf[:0], nil; !goesOn {
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
