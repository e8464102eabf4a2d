package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A member of etcd that is stalled keeps its connections and answers nothing, until that is
// noticed (keepaliveTime and keepaliveTimeout). All consistent reads wait for one that asks
// for the newest revision, so that one is asked again meanwhile, which is by another member.

// againAfter is how long such a read may take before it is asked again, beside itself. The
// time doubles with each attempt.
const againAfter = 500 * time.Millisecond

type got struct {
	resp *clientv3.GetResponse
	err  error
}

// promptly is a read of a key that one member of several cannot hold up. All attempts begin
// after the call, so any answer will do.
func (s *Store) promptly(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if s.newest != nil || len(s.client.Endpoints()) < 2 {
		return s.kv.Get(ctx, key, opts...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan got)
	ask := func() {
		var g got
		g.resp, g.err = s.kv.Get(ctx, key, opts...)
		select {
		case answers <- g:
		case <-ctx.Done():
		}
	}
	go ask() // ends with the context, as all that follow
	wait := againAfter
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		select {
		case g := <-answers:
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
