package fanout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// Sources of a replica's changes.
const (
	sourceNone  = "none"
	sourceNATS  = "nats"
	sourceStore = "store"
	sourceLocal = "local"
)

// errFollowing tells that a Follow runs already.
var errFollowing = errors.New("the stream is being followed already")

// calm is how long a replica has to stay on the stream, in heartbeats, for its
// earlier falls to be forgotten.
const calm = 60

// follower moves one replica along history; see the states in the package
// comment. It belongs to one goroutine; what others may know is in position.
type follower struct {
	f     *Fanout
	apply func(storage.Batch) error

	// place up to which everything was handed to apply.
	place storage.Place
	// feed delivers from the store; nil while on the stream.
	feed     *feed
	stopFeed context.CancelFunc
	feeds    sync.WaitGroup

	// mark is a revision that was applied at the time marked: a stream that
	// has reached it is no further behind than that.
	mark   int64
	marked time.Time
	// rejoin is when the stream may be joined again, after falls in a row.
	rejoin time.Time
	fell   time.Time
	// request is what a chain has to answer before it is joined, requested when it
	// was made last.
	request   uint64
	requested time.Time
	// announced is when the publisher was last told that somebody listens.
	announced time.Time
	// ahead is since when the stream, which is alive, says less than is known.
	ahead time.Time
	falls backoff
}

// position is what others may know of the follower.
type position struct {
	following atomic.Bool
	// joined: the stream has been followed since following began.
	joined  atomic.Bool
	applied atomic.Int64
	place   atomic.Pointer[storage.Place]
	fresh   moment // when a statement was applied last
	feed    atomic.Pointer[feed]
}

// Follow delivers what happened after a place to apply, in order and whole
// revisions at a time, until ctx ends (returning its error) or apply fails
// (returning that). *storage.CompactedError tells that the store no longer
// keeps what comes next, *storage.ReplacedError that its history does not go
// through the place: load again. Batches without events carry progress.
// One Follow runs at a time.
func (f *Fanout) Follow(ctx context.Context, from storage.Place, apply func(storage.Batch) error) error {
	if !f.pos.following.CompareAndSwap(false, true) {
		return errFollowing
	}
	f.pos.joined.Store(false)
	defer f.pos.following.Store(false)
	fo := &follower{
		f: f, apply: apply, place: from,
		falls: backoff{first: f.beat / 4, most: 30 * f.beat},
	}
	defer fo.finish()
	if f.deliveries != nil {
		f.deliveries.forget()
	}
	fo.move(from)
	f.pos.fresh.note()
	return fo.run(ctx)
}

func (fo *follower) finish() {
	fo.f.inbox.finish()
	fo.closeFeed()
	fo.feeds.Wait()
	fo.f.setSource(sourceNone)
}

func (fo *follower) run(ctx context.Context) error {
	f := fo.f
	f.inbox.begin()
	fo.toStore(ctx, reasonStart)
	tick := time.NewTicker(f.beat / 4)
	defer tick.Stop()
	for {
		var batches <-chan storage.Batch
		var failed <-chan error
		if fo.feed != nil {
			batches, failed = fo.feed.batches, fo.feed.failed
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.inbox.ready:
			err = fo.stream(ctx)
		case b := <-batches:
			if err = fo.deliver(b); err == nil {
				err = fo.stream(ctx)
			}
		case err = <-failed:
			err = fmt.Errorf("read changes after %d: %w", fo.place.Revision, err)
		case <-tick.C:
			err = fo.tick(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// stream joins the stream if that is possible, and applies what waits.
func (fo *follower) stream(ctx context.Context) error {
	in := fo.f.inbox
	if fo.feed != nil {
		fo.seek()
		if !fo.agrees() {
			return nil
		}
		fo.closeFeed()
		fo.f.pos.joined.Store(true)
		fo.f.setSource(fo.streamSource())
	}
	for ctx.Err() == nil {
		m, gap, ok := in.next(fo.place)
		if !ok {
			break
		}
		if gap != noReason {
			fo.toStore(ctx, gap)
			return nil
		}
		if err := fo.deliver(storage.Batch{Events: m.events, Revision: m.revision}); err != nil {
			return err
		}
		if local := fo.f.source() == sourceLocal; local != m.local {
			fo.f.setSource(fo.streamSource())
		}
	}
	if r := in.takeAlarm(); r != noReason {
		fo.toStore(ctx, r)
	}
	return ctx.Err()
}

// seek asks for a chain that may be joined, once that may be, and again when there
// is no answer or somebody new.
func (fo *follower) seek() {
	now := time.Now()
	if now.Before(fo.rejoin) {
		return
	}
	if still, met := fo.f.inbox.sought(fo.f.silence()); still && (met || now.Sub(fo.requested) > fo.f.beat/2) {
		fo.requested = now
		fo.f.askForLook(fo.request)
	}
}

// agrees tells whether the stream can be joined now.
func (fo *follower) agrees() bool {
	now := time.Now()
	if now.Before(fo.rejoin) {
		return false
	}
	if now.Sub(fo.marked) > fo.f.beat {
		fo.mark, fo.marked = fo.place.Revision, now
	}
	if !fo.f.inbox.join(fo.place, fo.mark, fo.f.silence()) {
		return false
	}
	// What was lost before is healed.
	fo.f.inbox.takeAlarm()
	return true
}

// deliver applies what is new in a batch.
func (fo *follower) deliver(b storage.Batch) error {
	if b.Revision < fo.place.Revision {
		return nil
	}
	events := b.Events
	for len(events) > 0 && events[0].Revision <= fo.place.Revision {
		events = events[1:]
	}
	if len(events) == 0 && b.Revision == fo.place.Revision && len(b.Events) > 0 {
		return nil // a repetition, not a sign of life
	}
	if err := fo.apply(storage.Batch{Events: events, Revision: b.Revision}); err != nil {
		return err
	}
	if d := fo.f.deliveries; d != nil {
		d.have(storage.Batch{Events: events, Revision: b.Revision}, fo.f.source())
	}
	fo.move(fo.place.After(storage.Batch{Events: events, Revision: b.Revision}))
	fo.f.pos.fresh.note()
	return nil
}

// move notes how far the replica is.
func (fo *follower) move(to storage.Place) {
	fo.place = to
	fo.f.pos.place.Store(&to)
	fo.f.pos.applied.Store(to.Revision)
}

// tick looks after what no message brings up: silence, and the time to rejoin.
func (fo *follower) tick(ctx context.Context) error {
	if now := time.Now(); now.Sub(fo.announced) >= announceBeats*fo.f.beat {
		fo.announced = now
		fo.f.askPublisher()
	}
	if fo.feed == nil {
		if r := fo.f.inbox.overdue(fo.f.silence(), fo.f.beat/2); r != noReason {
			fo.toStore(ctx, r)
		} else if fo.outruns() {
			fo.toStore(ctx, reasonHistory)
		}
		return nil
	}
	if fo.f.pos.fresh.age() > fo.f.beat {
		fo.feed.ask()
	}
	return fo.stream(ctx)
}

// outruns tells whether the stream has told of less than the replica knows for longer
// than heartbeats take: its publisher may have a store that went back.
func (fo *follower) outruns() bool {
	now := time.Now()
	if told, _ := fo.f.inbox.state(); told >= fo.place.Revision {
		fo.ahead = time.Time{}
	} else if fo.ahead.IsZero() {
		fo.ahead = now
	}
	return !fo.ahead.IsZero() && now.Sub(fo.ahead) > 2*fo.f.beat
}

// toStore opens the way through the store.
func (fo *follower) toStore(ctx context.Context, why reason) {
	f := fo.f
	now := time.Now()
	fo.ahead = time.Time{}
	fo.mark, fo.marked = fo.place.Revision, now
	if why != reasonStart {
		f.metrics.gaps.WithLabelValues(string(why)).Inc()
	}
	if why != reasonStart && why != reasonEnd && why != reasonPublisher {
		fo.delayRejoin(now)
	}
	f.log.Info("reading changes from the store", "reason", string(why), "revision", fo.place.Revision)
	ctx, fo.stopFeed = context.WithCancel(ctx)
	fo.feed = newFeed(f.store, f.root, f.beat/4, f.log)
	fo.feed.ask()
	feed, after := fo.feed, fo.place
	fo.feeds.Go(func() { feed.run(ctx, after) })
	f.pos.feed.Store(fo.feed)
	f.setSource(sourceStore)
	fo.request, fo.requested = rand.Uint64()|1, time.Time{}
	f.inbox.seek(fo.request)
	f.askPublisher() // says that there is somebody, who may not join at once
	fo.seek()
}

// delayRejoin lets the first fall after a calm time be healed at once, and
// each one after it take longer.
func (fo *follower) delayRejoin(now time.Time) {
	if fo.fell.IsZero() || now.Sub(fo.fell) > calm*fo.f.beat {
		fo.falls.reset()
		fo.rejoin = now
	} else {
		fo.rejoin = now.Add(fo.falls.next())
	}
	fo.fell = now
}

func (fo *follower) closeFeed() {
	if fo.feed == nil {
		return
	}
	fo.stopFeed()
	fo.feed, fo.stopFeed = nil, nil
	fo.f.pos.feed.Store(nil)
}

func (fo *follower) streamSource() string {
	if _, local := fo.f.inbox.state(); local {
		return sourceLocal
	}
	return sourceNATS
}
