package fanout

import (
	"context"
	"slices"
)

// A publisher that does not know yet that its store went back tells of the history
// before, and so may what is on its way from it. A replica that has read from the
// store takes nothing of a chain, therefore, before its publisher has looked at the
// store once more, after the replica asked for that: it opens its store watch anew at
// the place that it has come to, which the store has to know (storage.Interface,
// Resume), and forgets what the watch before had for it. The first batch of the new
// one is the proof. Whatever the chain tells from there on is of the history that the
// replica has read, or of a later one.

// look takes a request for a look at the store.
func (p *publisher) look(request uint64) {
	p.mu.Lock()
	if !slices.Contains(p.wanted, request) {
		p.wanted = append(p.wanted, request)
	}
	p.mu.Unlock()
	select {
	case p.looks <- struct{}{}:
	default:
	}
}

func (p *publisher) isWanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.wanted) > 0
}

// open opens the store watch where the chain is. What was asked for before will be
// answered by its first batch.
func (p *publisher) open(ctx context.Context) (*feed, context.CancelFunc) {
	p.mu.Lock()
	p.looking, p.wanted = append(p.looking, p.wanted...), nil
	p.mu.Unlock()
	f := newFeed(p.f.store, p.f.root, p.f.beat/4, p.f.log)
	f.asks = p.asks
	p.ask()
	at := p.chained
	at.Revision = max(at.Revision, p.progressed)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx, at)
	}()
	return f, func() { cancel(); <-ended }
}

// ask requests progress of the feed that runs, or of the next one.
func (p *publisher) ask() {
	select {
	case p.asks <- struct{}{}:
	default:
	}
}

// answer says that the store was found to have the chain's history, to those who
// asked for it.
func (p *publisher) answer() {
	for some := range slices.Chunk(p.looking, maxAnswers) {
		m := p.statement(p.progressed)
		m.answers = some
		p.state(m)
	}
	p.looking = nil
}
