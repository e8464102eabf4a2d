package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage"
)

// ElectionPrefix is the root of the keys of elections. Each candidate has a key
// <prefix><name>/<lease>, and the oldest is elected.
const ElectionPrefix = "/binnacle/elections/"

// DefaultElectionTTL is how long the leader may be silent.
const DefaultElectionTTL = 5 * time.Second

// Elector elects one of several replicas for a task.
//
// The leader holds a lease, and counts its lifetime from before a renewal is sent, while etcd
// counts from its arrival. So the leader notices its loss before etcd elects another leader. A
// margin of a fifth of the lifetime covers clocks of different speed.
type Elector struct {
	store    *Store
	lifetime time.Duration
	log      *slog.Logger
}

// NewElector returns an Elector. A ttl of 0 means DefaultElectionTTL. etcd counts lifetimes in
// seconds.
func NewElector(s *Store, ttl time.Duration) *Elector {
	if ttl <= 0 {
		ttl = DefaultElectionTTL
	}
	return &Elector{store: s, lifetime: ttl, log: s.log}
}

// Campaign blocks until this candidate is elected. The context bounds the wait only. id identifies
// the candidate to people. lost is closed when the election no longer holds, and always before
// another candidate can be elected. resign gives up the leadership and returns when etcd has
// confirmed it or is unreachable. It must also be called after a loss, to release resources.
func (e *Elector) Campaign(ctx context.Context, name, id string) (lost <-chan struct{}, resign func(), err error) {
	for {
		next, err := e.newCandidate(ctx, name, id)
		if err != nil {
			return nil, nil, err
		}
		err = next.awaitElection(ctx)
		if err == nil {
			return next.lost, next.resign, nil
		}
		next.resign()
		if !errors.Is(err, errLeaseLost) {
			return nil, nil, err
		}
		// The lease expired while waiting, and with it the place in the queue.
	}
}

var errLeaseLost = errors.New("the candidate's lease was lost")

// candidate is one candidacy, from its creation to its resignation.
type candidate struct {
	elector  *Elector
	prefix   string
	lease    clientv3.LeaseID
	revision int64

	lost    chan struct{}
	cancel  context.CancelFunc
	renewed chan struct{}
	once    sync.Once
}

// newCandidate writes the candidate's key and starts to renew its lease.
func (e *Elector) newCandidate(ctx context.Context, name, id string) (*candidate, error) {
	prefix := ElectionPrefix + name + "/"
	since := time.Now()
	grant, err := e.store.client.Grant(ctx, int64((e.lifetime+time.Second-1)/time.Second))
	if err != nil {
		return nil, fmt.Errorf("election %q: lease: %w", name, e.store.translateError(ctx, err))
	}
	renewing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	created := &candidate{
		elector: e,
		prefix:  prefix,
		lease:   grant.ID,
		lost:    make(chan struct{}),
		cancel:  cancel,
		renewed: make(chan struct{}),
	}
	go created.keepRenewing(renewing, since, time.Duration(grant.TTL)*time.Second)
	resp, err := e.store.kv.Put(ctx, fmt.Sprintf("%s%016x", prefix, int64(grant.ID)), id, clientv3.WithLease(grant.ID))
	if err != nil {
		created.resign()
		return nil, fmt.Errorf("election %q: %w", name, e.store.translateError(ctx, err))
	}
	created.revision = resp.Header.Revision
	return created, nil
}

// awaitElection returns nil when no candidate is older.
func (c *candidate) awaitElection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := c.elector.store
	for {
		// The youngest of the older ones: each waits for the one before it, so a resignation wakes
		// only one candidate.
		resp, err := s.kv.Get(ctx, c.prefix, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(c.revision-1))...)
		if err != nil {
			return fmt.Errorf("election: %w", s.translateError(ctx, err))
		}
		select {
		case <-c.lost:
			return errLeaseLost
		default:
		}
		if len(resp.Kvs) == 0 {
			return nil
		}
		if err := c.awaitDeletion(ctx, string(resp.Kvs[0].Key), resp.Header.Revision); err != nil {
			return err
		}
	}
}

// awaitDeletion returns when the key was deleted, or after a while: an etcd that was restored from
// a backup does not deliver changes at revisions that the watch has passed.
func (c *candidate) awaitDeletion(ctx context.Context, key string, after int64) error {
	recheck := time.NewTimer(c.elector.lifetime)
	defer recheck.Stop()
	watcher, err := c.elector.store.Watch(ctx, key, after)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for {
		select {
		case <-c.lost:
			return errLeaseLost
		case <-ctx.Done():
			return ctx.Err()
		case <-recheck.C:
			return nil
		case b, ok := <-watcher.Batches():
			if !ok {
				if err := watcher.Err(); err != nil && !isFinal(err) {
					return err
				}
				return ctx.Err()
			}
			for _, ev := range b.Events {
				if ev.Type == storage.Deleted {
					return nil
				}
			}
		}
	}
}

// renewal is the result of an attempt to renew a lease.
type renewal struct {
	sent time.Time
	err  error
}

// keepRenewing renews the lease until the context ends, and closes lost if it does not succeed in
// time. An unanswered attempt does not delay the next one: one of several members of etcd may be
// stalled while the other ones respond.
func (c *candidate) keepRenewing(ctx context.Context, lastRenewal time.Time, ttl time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	var attempts sync.WaitGroup
	defer close(c.renewed)
	defer attempts.Wait()
	defer cancel()
	defer close(c.lost)
	validFor := ttl - ttl/5 // the margin for clocks of different speed
	renewals := make(chan renewal)
	expiry := time.NewTimer(time.Until(lastRenewal.Add(validFor)))
	defer expiry.Stop()
	ticker := time.NewTicker(ttl / 5)
	defer ticker.Stop()
	var lastErr error
	renewNow := true
	for {
		if renewNow {
			until := lastRenewal.Add(validFor)
			attempts.Go(func() { c.renewOnce(ctx, until, renewals) })
		}
		renewNow = false
		select {
		case <-ticker.C:
			renewNow = true
		case attempt := <-renewals:
			lastErr = attempt.err
			if attempt.err == nil && attempt.sent.After(lastRenewal) {
				lastRenewal = attempt.sent
				expiry.Reset(time.Until(lastRenewal.Add(validFor)))
			}
			if errors.Is(attempt.err, rpctypes.ErrLeaseNotFound) {
				c.elector.log.Warn("election lost", "election", c.prefix, "error", attempt.err)
				return
			}
		case <-expiry.C:
			c.elector.log.Warn("election lost", "election", c.prefix, "error", lastErr)
			return
		case <-ctx.Done():
			return
		}
	}
}

// renewOnce sends the result of one attempt to renew the lease.
func (c *candidate) renewOnce(ctx context.Context, until time.Time, renewals chan<- renewal) {
	expiring, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	attempt := renewal{sent: time.Now()}
	_, attempt.err = c.elector.store.client.KeepAliveOnce(expiring, c.lease)
	select {
	case renewals <- attempt:
	case <-ctx.Done():
	}
}

// resign closes lost first and then notifies etcd.
func (c *candidate) resign() {
	c.once.Do(func() {
		c.cancel()
		<-c.renewed
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// If the revocation fails, the lease expires at its end.
		if _, err := c.elector.store.client.Revoke(ctx, c.lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			c.elector.log.Debug("election lease was not revoked", "error", err)
		}
	})
}
