package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"binnacle/services/apiserver/internal/storage"
)

// stream is one connection of a watch to etcd. Except for receive and probe, all of it runs in the
// watch's goroutine.
type stream struct {
	*watch
	ctx  context.Context
	grpc pb.Watch_WatchClient
	// from is the first requested revision. rechecking means that it was delivered before and must
	// be redelivered first.
	from       int64
	rechecking bool
	// reachedFrom means that etcd's revision has reached from. Before that, etcd does not respond
	// to progress requests, and the newest revision is read instead.
	reachedFrom bool
	retryTicker *time.Ticker // repeats requests for progress

	// A probe reads the newest revision.
	probing  bool // a probe is running
	probed   chan probeResult
	probedAt storage.Position // the position when the probe started

	// serving is the ID of the member that serves the stream. Unless its progress notifications are
	// reliable, probes read the newest revision too.
	serving          uint64
	created          bool // the first response has arrived
	reliability      progressReliability
	resolveAttempted bool // resolveReliability has tried at least once
	resolving        bool // resolveReliability is running
	resolved         chan progressReliability

	// undelivered is a newest revision that was read but not delivered. If its events do not arrive
	// within a while, there are none, and a marker is written.
	undelivered   int64
	writingMarker bool
	markerWritten chan struct{}
}

// runStream opens a stream and delivers from it until it breaks.
func (w *watch) runStream() error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(w.ctx))
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()

	// 1. Open the stream and request the watch.
	client, err := w.store.watches.Watch(ctx, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return err
	}
	s := &stream{
		watch:         w,
		ctx:           ctx,
		grpc:          client,
		from:          w.position.Revision + 1,
		probed:        make(chan probeResult, 1),
		resolved:      make(chan progressReliability, 1),
		markerWritten: make(chan struct{}, 1),
		retryTicker:   time.NewTicker(progressRetry),
	}
	defer s.retryTicker.Stop()
	s.retryTicker.Stop() // until the first request for progress
	s.recheckLastChange()
	if err := client.Send(s.createRequest()); err != nil {
		return err
	}
	if w.awaitingProgress {
		// The request was lost with the earlier stream.
		if err := s.requestProgress(&helpers); err != nil {
			return err
		}
	}

	// 2. Handle responses and requests until the stream breaks.
	responses := make(chan *pb.WatchResponse)
	broken := make(chan error, 1)
	helpers.Go(func() { broken <- forwardResponses(ctx, client, responses) })
	for err == nil {
		select {
		case <-w.ctx.Done():
			err = w.ctx.Err()
		case err = <-broken:
		case <-w.progressRequests:
			if w.awaitingProgress {
				w.requestedAgain = true
				continue
			}
			err = s.requestProgress(&helpers)
		case <-s.retryTicker.C:
			err = s.requestProgress(&helpers)
		case p := <-s.probed:
			err = s.handleProbe(p, &helpers)
		case s.reliability = <-s.resolved:
			s.resolveAttempted = true
			if s.awaitingProgress {
				err = s.requestProgress(&helpers)
			}
		case <-s.markerWritten:
			s.writingMarker = false
		case resp := <-responses:
			err = s.handleResponse(resp, &helpers)
		}
	}
	return err
}

// handleResponse applies a response and then decides what to request next.
func (s *stream) handleResponse(resp *pb.WatchResponse, helpers *sync.WaitGroup) error {
	if err := s.applyResponse(resp); err != nil {
		return err
	}
	if s.completesRequest(resp) {
		if err := s.finishProgressRequest(helpers); err != nil {
			return err
		}
	}
	if resp.Created && s.rechecking && !s.awaitingProgress {
		if err := s.requestProgress(helpers); err != nil { // the response shows which events exist
			return err
		}
	}
	if s.confirmed && resp.Header.GetRevision() < s.position.Revision {
		s.startProbe(helpers) // the member lags, or etcd's revision went backwards
	}
	if s.awaitingProgress {
		s.startResolving(helpers)
	}
	return nil
}

// requestProgress requests progress, and repeats the request after a while: etcd drops requests
// while the watch is behind or a queue is full.
func (s *stream) requestProgress(helpers *sync.WaitGroup) error {
	s.awaitingProgress = true
	s.retryTicker.Reset(progressRetry)
	s.startResolving(helpers)
	if s.reachedFrom && s.reliability == progressReliable {
		return s.grpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
	if s.undelivered > s.position.Revision && s.resolveAttempted {
		if !s.writingMarker {
			s.writingMarker = true
			helpers.Go(s.writeMarker)
		}
		return nil
	}
	s.startProbe(helpers)
	return nil
}

// startProbe reads the newest revision unless a read is running.
func (s *stream) startProbe(helpers *sync.WaitGroup) {
	if s.probing {
		return
	}
	s.probing = true
	s.probedAt = storage.Position{}
	if s.confirmed {
		s.probedAt = s.position
	}
	helpers.Go(s.readNewest)
}

// startResolving starts to check whether the serving member sends reliable progress notifications,
// once the member is known and the result matters.
func (s *stream) startResolving(helpers *sync.WaitGroup) {
	if s.reliability == progressUnknown && s.created && !s.resolving {
		s.resolving = true
		helpers.Go(s.resolveReliability)
	}
}

// completesRequest reports whether a handled response completes a request for progress. A response
// of an unreliable member does if everything up to undelivered has arrived.
func (s *stream) completesRequest(resp *pb.WatchResponse) bool {
	if s.reliability == progressReliable {
		return resp.WatchId == clientv3.InvalidWatchID
	}
	if !s.awaitingProgress || s.undelivered == 0 || s.position.Revision < s.undelivered {
		return false
	}
	s.deliverBatch(storage.Batch{Revision: s.position.Revision})
	return true
}

// probeResult is the result of a read of the newest revision.
type probeResult struct {
	newest   int64
	replaced error // the history is not the delivered one
}

// readNewest reads the newest revision and sends it to probed. The stream itself reports outages.
func (s *stream) readNewest() {
	var result probeResult
	var err error
	result.newest, err = s.store.confirmNewest(s.ctx, s.probedAt)
	if isFinal(err) {
		result.replaced = err
	}
	s.probed <- result
}

// handleProbe handles the result of a probe of the newest revision.
func (s *stream) handleProbe(result probeResult, helpers *sync.WaitGroup) error {
	s.probing = false
	newest := result.newest
	s.reachedFrom = s.reachedFrom || newest >= s.from
	switch {
	case result.replaced != nil:
		return result.replaced
	case newest == 0 || !s.awaitingProgress:
		return nil
	case s.reachedFrom && s.reliability == progressReliable:
		return s.requestProgress(helpers)
	case newest > s.position.Revision:
		s.undelivered = newest
		return nil
	case s.rechecking: // Earlier deliveries are redelivered, or the reliability is determined.
		return nil
	}
	// Nothing happened since the last delivery. A revision that is still awaited, because the watch
	// starts in the future, is not reported.
	if newest >= s.position.Revision {
		s.deliverBatch(storage.Batch{Revision: s.position.Revision})
	}
	return s.finishProgressRequest(helpers)
}

// finishProgressRequest finishes the wait, unless progress was requested again during it.
func (s *stream) finishProgressRequest(helpers *sync.WaitGroup) error {
	s.awaitingProgress = false
	s.undelivered = 0
	s.retryTicker.Stop()
	if !s.requestedAgain {
		return nil
	}
	s.requestedAgain = false
	return s.requestProgress(helpers)
}

// applyResponse delivers the events of a response, or the progress that it reports.
func (s *stream) applyResponse(resp *pb.WatchResponse) error {
	if resp.Header.GetRevision() >= s.from {
		s.reachedFrom = true
	}
	switch {
	case resp.CompactRevision != 0 && s.rechecking:
		s.compacted = max(resp.CompactRevision, s.from+1)
		return errLastCompacted
	case resp.CompactRevision != 0:
		s.store.noteCompacted(resp.CompactRevision)
		return &storage.CompactedError{OldestRevision: resp.CompactRevision}
	case resp.Canceled:
		return fmt.Errorf("watch canceled by etcd: %s", resp.CancelReason)
	case resp.Created:
		s.created = true
		s.serving = resp.Header.GetMemberId()
		return confirmCluster(s.position, resp.Header)
	}
	if len(resp.Events) > 0 {
		return s.handleEvents(toBatch(resp.Events))
	}
	if resp.Header.Revision >= s.position.Revision && s.reliability == progressReliable {
		if s.rechecking { // All existing events were delivered.
			_, err := s.position.Recheck(s.from, nil)
			return err
		}
		s.deliverBatch(storage.Batch{Revision: resp.Header.Revision})
	}
	return nil
}

// createRequest returns the request that starts the watch. It requests whole revisions: etcd sends
// all events of a revision in one response. It does not request fragments: etcd measures a whole
// fragment again for each event that it adds. Tens of thousands of keys that are deleted in one
// revision would keep it busy for minutes while every replica waits.
func (s *stream) createRequest() *pb.WatchRequest {
	from, end := prefixRange(s.prefix)
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key:            []byte(from),
		RangeEnd:       []byte(end),
		StartRevision:  s.from,
		ProgressNotify: true,
	}}}
}

// forwardResponses passes the responses of a stream to the watch until it breaks.
func forwardResponses(ctx context.Context, grpcStream pb.Watch_WatchClient, responses chan<- *pb.WatchResponse) error {
	for {
		resp, err := grpcStream.Recv()
		if err != nil {
			return err
		}
		select {
		case responses <- resp:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A watch that resumes requests the last known change again. If it receives something else, or
// nothing, the history is not the one delivered so far: etcd was restored from a backup and assigns
// revisions again. The check uses the same stream that continues from there, so nothing can happen
// in between.

// maxRedelivered bounds how many revisions are redelivered. It is below what etcd sends at a
// time, so all of them arrive with the first one.
const maxRedelivered = 900

// errLastCompacted closes a stream on which the last change cannot be
// redelivered, because it is compacted. Later changes may not be compacted, and
// that nothing changed since can still be confirmed.
var errLastCompacted = errors.New("the last change that was delivered is compacted")

// recheckLastChange makes the stream begin with the last known change, or with the oldest later
// revision that is not compacted.
func (s *stream) recheckLastChange() {
	last := s.position.Last.Revision
	from := max(last, s.compacted)
	if last == 0 || from > s.position.Revision || s.position.Revision-from > maxRedelivered {
		return
	}
	s.from = from
	s.rechecking = true
}

// handleEvents handles the events of one response.
func (s *stream) handleEvents(batch storage.Batch) error {
	if s.rechecking {
		events, err := s.position.Recheck(s.from, batch.Events)
		if err != nil {
			return err
		}
		batch.Events = events
		s.rechecking = false
	}
	for len(batch.Events) > 0 && batch.Events[0].Revision <= s.position.Revision {
		batch.Events = batch.Events[1:]
	}
	if len(batch.Events) > 0 {
		s.deliverBatch(batch)
	}
	return nil
}
