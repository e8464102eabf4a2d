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

// stableAfter is the number of heartbeats after which a fall (see the package comment) no longer
// delays the next rejoin.
const stableAfter = 60

// follower applies the changes to one replica; see the states in the package comment. One goroutine
// owns it. Other goroutines read Fanout.followerState.
type follower struct {
	fanout *Fanout
	apply  func(storage.Batch) error

	// position is the position up to which everything was passed to apply.
	position storage.Position
	// feed delivers changes from the store. It is nil in the states nats and local.
	feed     *feed
	stopFeed context.CancelFunc // stops feed
	feeds    sync.WaitGroup     // goroutines of this feed and earlier ones

	// recentRevision is the revision that was applied at recentAt. canJoin requires that the stream
	// has reached it, so the stream lags by at most the time since recentAt.
	recentRevision int64
	recentAt       time.Time
	// rejoin is the earliest time to join the stream again after repeated falls.
	rejoin      time.Time
	lastFall    time.Time
	fallBackoff backoff
	// joinRequest identifies the request that a chain must answer before the replica joins it. It is
	// never 0 while the replica reads from the store. joinRequestedAt is when it was last sent.
	joinRequest     uint64
	joinRequestedAt time.Time
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
	started := &follower{
		fanout:      f,
		apply:       apply,
		position:    from,
		fallBackoff: backoff{minimum: f.heartbeat / 4, maximum: 30 * f.heartbeat},
	}
	defer started.stop()
	if f.deliveries != nil {
		f.deliveries.reset()
	}
	started.setPosition(from)
	f.followerState.lastApplied.set()
	return started.run(ctx)
}

// stop stops the feeds and drops the waiting messages.
func (fo *follower) stop() {
	fo.fanout.inbox.stopFollowing()
	fo.closeFeed()
	fo.feeds.Wait()
	fo.fanout.setSource(sourceNone)
}

// run applies changes until ctx ends or an error occurs.
func (fo *follower) run(ctx context.Context) error {
	fanout := fo.fanout
	fanout.inbox.startFollowing()
	fo.switchToStore(ctx, reasonStart)
	tick := time.NewTicker(fanout.heartbeat / 4)
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
		case <-fanout.inbox.ready:
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
	in := fo.fanout.inbox

	// 1. Join the stream, if the replica reads from the store.
	if fo.feed != nil {
		fo.requestJoin()
		if !fo.canJoin() {
			return nil
		}
		fo.closeFeed()
		fo.fanout.followerState.joined.Store(true)
		fo.fanout.setSource(fo.streamSource())
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
		if local := fo.fanout.currentSourceName() == sourceLocal; local != m.local {
			fo.fanout.setSource(fo.streamSource())
		}
	}

	// 3. Leave the stream if messages were lost.
	if reason := in.takeLoss(); reason != noReason {
		fo.switchToStore(ctx, reason)
	}
	return ctx.Err()
}

// requestJoin sends the request to join a chain once rejoining is allowed. It repeats the request if there
// is no answer or another publisher appears.
func (fo *follower) requestJoin() {
	now := time.Now()
	if now.Before(fo.rejoin) {
		return
	}
	missing, isNew := fo.fanout.inbox.joinAnswerMissing(fo.fanout.maxSilence())
	if missing && (isNew || now.Sub(fo.joinRequestedAt) > fo.fanout.heartbeat/2) {
		fo.joinRequestedAt = now
		fo.fanout.sendJoinRequest(fo.joinRequest)
	}
}

// canJoin reports whether the stream can be joined now.
func (fo *follower) canJoin() bool {
	now := time.Now()
	if now.Before(fo.rejoin) {
		return false
	}
	if now.Sub(fo.recentAt) > fo.fanout.heartbeat {
		fo.recentRevision = fo.position.Revision
		fo.recentAt = now
	}
	if !fo.fanout.inbox.canContinue(fo.position, fo.recentRevision, fo.fanout.maxSilence()) {
		return false
	}
	// Losses before the join are irrelevant.
	fo.fanout.inbox.clearLoss()
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
	if d := fo.fanout.deliveries; d != nil {
		d.recordApplied(applied, fo.fanout.currentSourceName())
	}
	fo.setPosition(fo.position.Advance(applied))
	fo.fanout.followerState.lastApplied.set()
	return nil
}

// setPosition records the position of the replica.
func (fo *follower) setPosition(to storage.Position) {
	fo.position = to
	fo.fanout.followerState.position.Store(&to)
	fo.fanout.followerState.applied.Store(to.Revision)
}

// handleTick announces the replica, detects silence of the stream and retries joining it.
func (fo *follower) handleTick(ctx context.Context) error {
	if now := time.Now(); now.Sub(fo.announced) >= announceHeartbeats*fo.fanout.heartbeat {
		fo.announced = now
		fo.fanout.requestHeartbeat()
	}
	if fo.feed == nil {
		if reason := fo.fanout.inbox.overdueReason(fo.fanout.maxSilence(), fo.fanout.heartbeat/2); reason != noReason {
			fo.switchToStore(ctx, reason)
		} else if fo.aheadOfStream() {
			fo.switchToStore(ctx, reasonHistory)
		}
		return nil
	}
	if fo.fanout.followerState.lastApplied.age() > fo.fanout.heartbeat {
		fo.feed.requestProgress()
	}
	return fo.followStream(ctx)
}

// aheadOfStream reports whether the stream has been behind the replica for longer than heartbeats
// take. The store of its publisher may have been restored from a backup.
func (fo *follower) aheadOfStream() bool {
	now := time.Now()
	if published, _ := fo.fanout.inbox.newestRevision(); published >= fo.position.Revision {
		fo.aheadSince = time.Time{}
	} else if fo.aheadSince.IsZero() {
		fo.aheadSince = now
	}
	return !fo.aheadSince.IsZero() && now.Sub(fo.aheadSince) > 2*fo.fanout.heartbeat
}

// switchToStore makes the replica read from the store and request a chain to join.
func (fo *follower) switchToStore(ctx context.Context, reason gapReason) {
	fanout := fo.fanout
	now := time.Now()

	// 1. Record the reason.
	level := slog.LevelInfo
	if reason == reasonStart {
		level = slog.LevelDebug
	} else {
		fanout.metrics.gaps.WithLabelValues(string(reason)).Inc()
	}
	fanout.log.Log(ctx, level, "reading changes from the store", "reason", string(reason), "revision", fo.position.Revision)
	isFault := reason != reasonStart && reason != reasonEnd && reason != reasonPublisher
	if isFault {
		fo.delayRejoin(now)
	}

	// 2. Start a feed at the position.
	fo.aheadSince = time.Time{}
	fo.recentRevision = fo.position.Revision
	fo.recentAt = now
	ctx, fo.stopFeed = context.WithCancel(ctx)
	fo.feed = newFeed(fanout.store, fanout.root, fanout.heartbeat/4, fanout.log)
	fo.feed.requestProgress()
	feed, after := fo.feed, fo.position
	fo.feeds.Go(func() { feed.run(ctx, after) })
	fanout.followerState.feed.Store(fo.feed)
	fanout.setSource(sourceStore)

	// 3. Request a chain to join.
	fo.joinRequest = rand.Uint64() | 1 // never 0, which stands for no request
	fo.joinRequestedAt = time.Time{}
	fanout.inbox.awaitJoinAnswer(fo.joinRequest)
	fanout.requestHeartbeat() // announces this replica, which may not join immediately
	fo.requestJoin()
}

// delayRejoin sets the earliest time to rejoin after a fall: immediately after the first fall for
// stableAfter, and later with each further one.
func (fo *follower) delayRejoin(now time.Time) {
	if fo.lastFall.IsZero() || now.Sub(fo.lastFall) > stableAfter*fo.fanout.heartbeat {
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
	fo.fanout.followerState.feed.Store(nil)
}

// streamSource returns the name of the stream's source: sourceLocal if the messages come from this
// replica's own publisher, otherwise sourceNATS.
func (fo *follower) streamSource() string {
	if _, local := fo.fanout.inbox.newestRevision(); local {
		return sourceLocal
	}
	return sourceNATS
}
