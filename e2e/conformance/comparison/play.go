package comparison

import (
	"context"
	"iter"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// settleTimeout limits how long the controllers of the servers may take.
const settleTimeout = 3 * time.Second

// Player plays conversations on both servers. It may be used concurrently.
type Player struct {
	Reference, Product *Server
	Found              *Groups
	// Reviews is the webhook of conversations whose admission reviews are compared; nil compares none.
	Reviews *Reviews
	// Cleanup returns the requests that follow a conversation on both servers.
	Cleanup func(c *Conversation) []Step
	// alone is held by all conversations; a conversation with shared objects locks it exclusively.
	alone sync.RWMutex
	sent  atomic.Int64
}

// PlayAll plays conversations concurrently until they end or the context does.
func (p *Player) PlayAll(ctx context.Context, workers int, conversations iter.Seq[*Conversation]) {
	waiting := make(chan *Conversation)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c := range waiting {
				p.play(ctx, c)
			}
		})
	}
	for c := range conversations {
		if ctx.Err() != nil {
			break
		}
		waiting <- c
	}
	close(waiting)
	wg.Wait()
}

// play plays a conversation until it ends or the context does.
func (p *Player) play(ctx context.Context, c *Conversation) {
	if c.Shared {
		p.alone.Lock()
		defer p.alone.Unlock()
	} else {
		p.alone.RLock()
		defer p.alone.RUnlock()
	}
	reference := newSession(p.Reference, c.Namespace)
	product := newSession(p.Product, c.Namespace)
	reviewed := c.Reviewed && p.Reviews != nil
	if reviewed {
		defer p.Reviews.stop(reference, product)
	}
	for i, s := range c.Steps {
		if ctx.Err() != nil {
			return
		}
		if reviewed && i == len(NamespaceSteps()) {
			p.Reviews.start(reference, product)
		}
		want, got := Exchange(reference, product, s)
		p.sent.Add(1)
		if unsaved(s, reference) != unsaved(s, product) { // a consequence of a difference before
			continue
		}
		differences := compare(want, got)
		for began := time.Now(); (s.Settles || s.readsCache()) && len(differences) > 0 && time.Since(began) < settleTimeout; differences = compare(want, got) {
			<-time.After(pollInterval)
			want, got = Exchange(reference, product, s)
		}
		if reviewed {
			differences = append(differences, p.Reviews.compare(reference, product)...)
		}
		for _, d := range differences {
			p.Found.add(finding{difference: d, conversation: c, step: i})
		}
		if s.changes() && (want.Status < http.StatusMultipleChoices) != (got.Status < http.StatusMultipleChoices) {
			break // the states of the servers differ from now on
		}
	}
	for _, s := range p.Cleanup(c) {
		Exchange(reference, product, s)
	}
}

// Sent returns the number of requests to each server.
func (p *Player) Sent() int64 { return p.sent.Load() }

var variables = regexp.MustCompile(`\{[a-z][A-Za-z0-9]*\}`)

// unsaved reports whether the path of a step has a variable that no response set.
func unsaved(s Step, session *Session) bool {
	return variables.MatchString(expand(s.Path, session.Vars))
}
