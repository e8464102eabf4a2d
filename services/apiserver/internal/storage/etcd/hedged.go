package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A stalled member of etcd keeps its connections and results nothing until it is detected
// (keepaliveTime and keepaliveTimeout). All consistent reads wait for a read of the newest
// revision, so that read is repeated in parallel, on another member.

// againAfter is the time after which such a read is repeated in parallel. It doubles with each
// attempt.
const againAfter = 500 * time.Millisecond

type getResult struct {
	resp *clientv3.GetResponse
	err  error
}

// hedgedGet reads a key such that a single stalled member cannot block it. All attempts begin after
// the call, so any response is valid.
func (s *Store) hedgedGet(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if s.newest != nil || len(s.client.Endpoints()) < 2 {
		return s.kv.Get(ctx, key, opts...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan getResult)
	ask := func() {
		var g getResult
		g.resp, g.err = s.kv.Get(ctx, key, opts...)
		select {
		case results <- g:
		case <-ctx.Done():
		}
	}
	go ask() // ends with the context, like all further attempts
	wait := againAfter
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		select {
		case g := <-results:
			return g.resp, g.err
		case <-again.C:
			go ask()
			wait *= 2
			again.Reset(wait)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
