package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"binnacle/services/apiserver/internal/storage"
)

// stream is one connection of a watch to etcd. But for receive and probe, all
// of it runs in the watch's goroutine.
type stream struct {
	*watch
	ctx  context.Context
	grpc pb.Watch_WatchClient
	// from is the first revision that was asked for.
	from int64
	// answers tells that etcd's revision has reached from. Before that, etcd
	// does not answer progress requests, and the newest revision is read.
	answers bool
	probing bool
	probed  chan int64
	retry   *time.Ticker
	// parts are the events of a response that etcd sends in fragments.
	parts []*mvccpb.Event
}

// stream opens a stream and delivers from it until it breaks.
func (w *watch) stream() error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(w.ctx))
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	client, err := w.store.watches.Watch(ctx, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return err
	}
	s := &stream{
		watch:  w,
		ctx:    ctx,
		grpc:   client,
		from:   w.delivered + 1,
		probed: make(chan int64, 1),
		retry:  time.NewTicker(progressRetry),
	}
	defer s.retry.Stop()
	s.retry.Stop()
	if err := client.Send(s.request()); err != nil {
		return err
	}
	if w.waiting {
		// The request was lost with the stream before.
		if err := s.ask(&helpers); err != nil {
			return err
		}
	}
	responses := make(chan *pb.WatchResponse)
	broken := make(chan error, 1)
	helpers.Go(func() { broken <- receive(ctx, client, responses) })
	for err == nil {
		select {
		case <-w.ctx.Done():
			err = w.ctx.Err()
		case err = <-broken:
		case <-w.asks:
			if w.waiting {
				w.again = true
				continue
			}
			err = s.ask(&helpers)
		case <-s.retry.C:
			err = s.ask(&helpers)
		case newest := <-s.probed:
			err = s.handleProbe(newest, &helpers)
		case resp := <-responses:
			if err = s.handle(resp); err == nil && resp.WatchId == clientv3.InvalidWatchID {
				err = s.answered(&helpers)
			}
		}
	}
	return err
}

// ask requests progress, and does so again after a while: a watch that is
// behind, or a full queue, is a request that etcd drops.
func (s *stream) ask(helpers *sync.WaitGroup) error {
	s.waiting = true
	s.retry.Reset(progressRetry)
	if s.answers {
		return s.grpc.Send(progressRequest())
	}
	if !s.probing {
		s.probing = true
		helpers.Go(s.probe)
	}
	return nil
}

// probe reads the newest revision; 0 means that it is not known.
func (s *stream) probe() {
	newest, err := s.store.revision(s.ctx)
	if err != nil {
		newest = 0 // It is read again, and the stream itself tells of outages.
	}
	s.probed <- newest
}

func (s *stream) handleProbe(newest int64, helpers *sync.WaitGroup) error {
	s.probing = false
	switch {
	case newest == 0 || !s.waiting:
		return nil
	case newest >= s.from:
		s.answers = true
		return s.ask(helpers)
	}
	// Nothing happened since the stream began. A revision that is awaited
	// still, because the watch starts in the future, is not told.
	if newest >= s.delivered {
		s.deliver(storage.Batch{Revision: s.delivered})
	}
	return s.answered(helpers)
}

// answered ends the wait, unless there was another wish meanwhile.
func (s *stream) answered(helpers *sync.WaitGroup) error {
	s.waiting = false
	s.retry.Stop()
	if !s.again {
		return nil
	}
	s.again = false
	return s.ask(helpers)
}

// handle takes one response.
func (s *stream) handle(resp *pb.WatchResponse) error {
	if resp.Header.GetRevision() >= s.from {
		s.answers = true
	}
	switch {
	case resp.CompactRevision != 0:
		s.store.noteCompacted(resp.CompactRevision)
		return &storage.CompactedError{Oldest: resp.CompactRevision}
	case resp.Canceled:
		return fmt.Errorf("watch canceled by etcd: %s", resp.CancelReason)
	case resp.Created:
		return nil
	case resp.Fragment:
		s.parts = append(s.parts, resp.Events...)
		return nil
	}
	events := resp.Events
	if len(s.parts) > 0 {
		events, s.parts = append(s.parts, events...), nil
	}
	if len(events) > 0 {
		s.deliver(batch(events))
	} else if resp.Header.Revision >= s.delivered {
		s.deliver(storage.Batch{Revision: resp.Header.Revision})
	}
	return nil
}

// request asks for whole revisions: etcd sends all events of a revision in one
// response, or in fragments that are put together again.
func (s *stream) request() *pb.WatchRequest {
	from, end := span(s.prefix)
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key:            []byte(from),
		RangeEnd:       []byte(end),
		StartRevision:  s.from,
		PrevKv:         true,
		ProgressNotify: true,
		Fragment:       true,
	}}}
}

func progressRequest() *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
}

func receive(ctx context.Context, s pb.Watch_WatchClient, to chan<- *pb.WatchResponse) error {
	for {
		resp, err := s.Recv()
		if err != nil {
			return err
		}
		select {
		case to <- resp:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
