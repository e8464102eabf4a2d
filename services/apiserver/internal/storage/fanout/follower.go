package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// errFollowing means that a Follow is already running.
var errFollowing = errors.New("the stream is being followed already")

// stableHeartbeats is the number of heartbeats after which a fall from the stream no longer delays
// the next rejoin. A fall is a switch from the stream to the store because of a fault.
const stableHeartbeats = 60

// follower applies the changes to one replica; see the states in the package comment. One goroutine
// owns it. Other goroutines read Fanout.followerState.
type follower struct {
	f     *Fanout
	apply func(storage.Batch) error

	// position is the position up to which everything was passed to apply.
	position storage.Position
	// feed delivers changes from the store. It is nil in the states nats and local.
	feed     *feed
	stopFeed context.CancelFunc // stops feed
	feeds    sync.WaitGroup     // goroutines of this feed and earlier ones

	// recentRevision is the revision that was applied at recentAt. A stream that has reached it
	// lags no more than the time since recentAt.
	recentRevision int64
	recentAt       time.Time
	// rejoin is the earliest time to join the stream again after repeated falls.
	rejoin      time.Time
	lastFall    time.Time
	fallBackoff backoff
	// request identifies the request that a chain must answer before the replica joins it.
	// requested is when the request was last sent.
	request   uint64
	requested time.Time
	// announced is when the replica last announced itself to the publisher.
	announced time.Time
	// aheadSince is the time since when the replica has a higher revision than the live stream, or
	// zero.
	aheadSince time.Time
}

// followerState holds the state of the follower for other goroutines.
type followerState struct {
	following atomic.Bool
	// joined means that the replica has joined the stream at least once since Follow started.
	joined      atomic.Bool
	applied     atomic.Int64 // revision of position
	position    atomic.Pointer[storage.Position]
	lastApplied timestamp // when a message was last applied
	feed        atomic.Pointer[feed]
}

// Follow delivers the changes after a position to apply, in order and in whole revisions. Batches
// without events carry progress. Only one Follow may run at a time.
//
// It returns the error of ctx or apply. *storage.CompactedError means that the store no longer keeps
// the next changes. *storage.ReplacedError means that the store's history does not contain the
// position. Both require another Load.
func (f *Fanout) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	if !f.followerState.following.CompareAndSwap(false, true) {
		return errFollowing
	}
	f.followerState.joined.Store(false)
	defer f.followerState.following.Store(false)
	fo := &follower{
		f:           f,
		apply:       apply,
		position:    from,
		fallBackoff: backoff{first: f.heartbeat / 4, maximum: 30 * f.heartbeat},
	}
	defer fo.stop()
	if f.deliveries != nil {
		f.deliveries.reset()
	}
	fo.setPosition(from)
	f.followerState.lastApplied.set()
	return fo.run(ctx)
}

// stop stops the feeds and drops the waiting messages.
func (fo *follower) stop() {
	fo.f.inbox.stopFollowing()
	fo.closeFeed()
	fo.feeds.Wait()
	fo.f.setSource(sourceNone)
}

// run applies changes until ctx ends or an error occurs.
func (fo *follower) run(ctx context.Context) error {
	f := fo.f
	f.inbox.startFollowing()
	fo.switchToStore(ctx, reasonStart)
	tick := time.NewTicker(f.heartbeat / 4)
	defer tick.Stop()
	for {
		var batches <-chan storage.Batch
		var failed <-chan error
		if fo.feed != nil {
			batches = fo.feed.batches
			failed = fo.feed.failed
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.inbox.ready:
			err = fo.followStream(ctx)
		case b := <-batches:
			if err = fo.applyNew(b); err == nil {
				err = fo.followStream(ctx)
			}
		case err = <-failed:
			err = fmt.Errorf("read changes after %d: %w", fo.position.Revision, err)
		case <-tick.C:
			err = fo.handleTick(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// followStream joins the stream if possible, and applies the waiting messages.
func (fo *follower) followStream(ctx context.Context) error {
	in := fo.f.inbox

	// 1. Join the stream, if the replica reads from the store.
	if fo.feed != nil {
		fo.requestChain()
		if !fo.canJoin() {
			return nil
		}
		fo.closeFeed()
		fo.f.followerState.joined.Store(true)
		fo.f.setSource(fo.streamSource())
	}

	// 2. Apply the waiting messages up to the first gap.
	for ctx.Err() == nil {
		m, gap, ok := in.takeNext(fo.position)
		if !ok {
			break
		}
		if gap != noReason {
			fo.switchToStore(ctx, gap)
			return nil
		}
		if err := fo.applyNew(storage.Batch{Events: m.events, Revision: m.revision}); err != nil {
			return err
		}
		if local := fo.f.currentSourceName() == sourceLocal; local != m.local {
			fo.f.setSource(fo.streamSource())
		}
	}

	// 3. Leave the stream if messages were lost.
	if reason := in.takeAlarm(); reason != noReason {
		fo.switchToStore(ctx, reason)
	}
	return ctx.Err()
}

// requestChain requests a chain to join once rejoining is allowed. It repeats the request if there
// is no answer or another publisher appears.
func (fo *follower) requestChain() {
	now := time.Now()
	if now.Before(fo.rejoin) {
		return
	}
	missing, isNew := fo.f.inbox.chainMissing(fo.f.maxSilence())
	if missing && (isNew || now.Sub(fo.requested) > fo.f.heartbeat/2) {
		fo.requested = now
		fo.f.requestCheck(fo.request)
	}
}

// canJoin reports whether the stream can be joined now.
func (fo *follower) canJoin() bool {
	now := time.Now()
	if now.Before(fo.rejoin) {
		return false
	}
	if now.Sub(fo.recentAt) > fo.f.heartbeat {
		fo.recentRevision = fo.position.Revision
		fo.recentAt = now
	}
	if !fo.f.inbox.canContinue(fo.position, fo.recentRevision, fo.f.maxSilence()) {
		return false
	}
	// Earlier losses are irrelevant now.
	fo.f.inbox.takeAlarm()
	return true
}

// applyNew applies the new changes of a batch.
func (fo *follower) applyNew(b storage.Batch) error {
	if b.Revision < fo.position.Revision {
		return nil
	}
	events := b.Events
	for len(events) > 0 && events[0].Revision <= fo.position.Revision {
		events = events[1:]
	}
	if len(events) == 0 && b.Revision == fo.position.Revision && len(b.Events) > 0 {
		return nil // a repetition, not progress
	}
	applied := storage.Batch{Events: events, Revision: b.Revision}
	if err := fo.apply(applied); err != nil {
		return err
	}
	if d := fo.f.deliveries; d != nil {
		d.recordApplied(applied, fo.f.currentSourceName())
	}
	fo.setPosition(fo.position.Advance(applied))
	fo.f.followerState.lastApplied.set()
	return nil
}

// setPosition records the position of the replica.
func (fo *follower) setPosition(to storage.Position) {
	fo.position = to
	fo.f.followerState.position.Store(&to)
	fo.f.followerState.applied.Store(to.Revision)
}

// handleTick handles what no message triggers: silence, and the time to rejoin.
func (fo *follower) handleTick(ctx context.Context) error {
	if now := time.Now(); now.Sub(fo.announced) >= announceHeartbeats*fo.f.heartbeat {
		fo.announced = now
		fo.f.requestHeartbeat()
	}
	if fo.feed == nil {
		if reason := fo.f.inbox.overdueSign(fo.f.maxSilence(), fo.f.heartbeat/2); reason != noReason {
			fo.switchToStore(ctx, reason)
		} else if fo.aheadOfStream() {
			fo.switchToStore(ctx, reasonHistory)
		}
		return nil
	}
	if fo.f.followerState.lastApplied.age() > fo.f.heartbeat {
		fo.feed.requestProgress()
	}
	return fo.followStream(ctx)
}

// aheadOfStream reports whether the stream has been behind the replica for longer than heartbeats
// take. The store of its publisher may have been restored from a backup.
func (fo *follower) aheadOfStream() bool {
	now := time.Now()
	if published, _ := fo.f.inbox.newestRevision(); published >= fo.position.Revision {
		fo.aheadSince = time.Time{}
	} else if fo.aheadSince.IsZero() {
		fo.aheadSince = now
	}
	return !fo.aheadSince.IsZero() && now.Sub(fo.aheadSince) > 2*fo.f.heartbeat
}

// switchToStore makes the replica read from the store and request a chain to join.
func (fo *follower) switchToStore(ctx context.Context, reason gapReason) {
	f := fo.f
	now := time.Now()

	// 1. Record the reason.
	level := slog.LevelInfo
	if reason == reasonStart {
		level = slog.LevelDebug
	} else {
		f.metrics.gaps.WithLabelValues(string(reason)).Inc()
	}
	f.log.Log(ctx, level, "reading changes from the store", "reason", string(reason), "revision", fo.position.Revision)
	isFault := reason != reasonStart && reason != reasonEnd && reason != reasonPublisher
	if isFault {
		fo.delayRejoin(now)
	}

	// 2. Start a feed at the position.
	fo.aheadSince = time.Time{}
	fo.recentRevision = fo.position.Revision
	fo.recentAt = now
	ctx, fo.stopFeed = context.WithCancel(ctx)
	fo.feed = newFeed(f.store, f.root, f.heartbeat/4, f.log)
	fo.feed.requestProgress()
	feed, after := fo.feed, fo.position
	fo.feeds.Go(func() { feed.run(ctx, after) })
	f.followerState.feed.Store(fo.feed)
	f.setSource(sourceStore)

	// 3. Request a chain to join.
	fo.request = rand.Uint64() | 1
	fo.requested = time.Time{}
	f.inbox.awaitChain(fo.request)
	f.requestHeartbeat() // announces this replica, which may not join immediately
	fo.requestChain()
}

// delayRejoin sets the earliest time to rejoin after a fall: immediately after the first fall for
// stableHeartbeats, and later with each further one.
func (fo *follower) delayRejoin(now time.Time) {
	if fo.lastFall.IsZero() || now.Sub(fo.lastFall) > stableHeartbeats*fo.f.heartbeat {
		fo.fallBackoff.reset()
		fo.rejoin = now
	} else {
		fo.rejoin = now.Add(fo.fallBackoff.nextDelay())
	}
	fo.lastFall = now
}

// closeFeed stops the running feed, if there is one.
func (fo *follower) closeFeed() {
	if fo.feed == nil {
		return
	}
	fo.stopFeed()
	fo.feed = nil
	fo.stopFeed = nil
	fo.f.followerState.feed.Store(nil)
}

// streamSource returns the name of the stream's source: sourceLocal if the messages come from this
// replica's own publisher, otherwise sourceNATS.
func (fo *follower) streamSource() string {
	if _, local := fo.f.inbox.newestRevision(); local {
		return sourceLocal
	}
	return sourceNATS
}
