package etcd

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxLeaseObjects bounds the values on one lease: etcd deletes them all at once when it expires.
const maxLeaseObjects = 1000

// leases shares one lease among many values, because a lease for each would cost etcd more than the
// values do. A lease lives slightly longer than requested (a twentieth, at most reuse). During that
// time it takes further values.
type leases struct {
	client  clientv3.Lease
	reuse   time.Duration
	objects prometheus.Observer

	// lock is a mutex as a channel of capacity one, so that waiting ends with the caller's context.
	// It guards the fields below and is held while a lease is granted, because all waiters need the
	// same lease.
	lock    chan struct{}
	id      clientv3.LeaseID
	expires time.Time
	count   int
}

func newLeases(client clientv3.Lease, reuse time.Duration, objects prometheus.Observer) *leases {
	return &leases{client: client, reuse: reuse, objects: objects, lock: make(chan struct{}, 1)}
}

// get returns a lease that lives for at least ttl.
func (l *leases) get(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-l.lock }()

	now := time.Now()
	slack := min(ttl/20, l.reuse)
	// etcd counts in seconds, so up to one more second is due to rounding here.
	if left := l.expires.Sub(now); l.id != 0 && l.count < maxLeaseObjects && left >= ttl && left <= ttl+slack+time.Second {
		l.count++
		return l.id, nil
	}
	resp, err := l.client.Grant(ctx, int64((ttl+slack+time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	l.retire()
	l.id, l.expires, l.count = resp.ID, now.Add(time.Duration(resp.TTL)*time.Second), 1
	return l.id, nil
}

// forget drops a lease that etcd no longer knows.
func (l *leases) forget(id clientv3.LeaseID) {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if l.id == id {
		l.retire()
	}
}

// retire drops the current lease. The caller holds lock.
func (l *leases) retire() {
	if l.id != 0 {
		l.objects.Observe(float64(l.count))
	}
	l.id, l.count = 0, 0
}
