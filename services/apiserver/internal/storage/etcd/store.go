package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage"
)

// DefaultPrefix is the root of all keys that Kubernetes stores.
const DefaultPrefix = "/registry/"

// DefaultLeaseReuse is the maximum time during which further values are attached to a lease.
const DefaultLeaseReuse = 60 * time.Second

// A List reads pages from etcd, so that neither side holds a response of unbounded size. The first
// page is small. Later ones are sized by the values read so far.
const (
	firstPage = 500
	maxPage   = 10_000
	pageBytes = 16 << 20
)

// Config configures a Store.
type Config struct {
	// Client connects to etcd. The Store does not close it.
	Client *clientv3.Client
	// Watch opens watch streams; nil opens them over the client's connection. It must be set for an
	// in-process client, which has no connection.
	Watch pb.WatchClient
	// LocalRevision returns the newest revision of a cluster whose only member runs in this
	// process, or an error if it is stopped. The member's own state is the newest, so with
	// LocalRevision set, linearizable reads need no consensus. It is nil for every other cluster.
	LocalRevision func() (int64, error)
	// Changes reads the changes of keys from "from" up to "end" (exclusive), after revision "after"
	// up to revision "until". It stops early when the events take the given number of bytes. It
	// returns the revision that it reached, and the revision of the last compaction. If it is nil,
	// history is read with watches.
	Changes func(from, end string, after, until int64, bytes int) (events []storage.Event, reached, compacted int64, err error)
	// Size returns the size of the database in bytes; nil reads it from one of the servers.
	Size func(context.Context) (int64, error)
	// Prefix is the root below which metrics distinguish types, and where Ping reads. Empty means
	// DefaultPrefix. It does not change keys.
	Prefix string
	// LeaseReuse is the maximum time during which further values are attached to a lease; 0 means
	// DefaultLeaseReuse.
	LeaseReuse time.Duration
	// Cluster is the name of the cluster in metrics; empty means etcd-0.
	Cluster string
	// Logger receives broken watch streams; nil discards them.
	Logger *slog.Logger
	// Metrics registers the etcd_* metrics; nil leaves them unregistered.
	Metrics prometheus.Registerer
}

// Store implements storage.Interface.
type Store struct {
	client             *clientv3.Client
	kv                 clientv3.KV
	watches            pb.WatchClient
	localRevision      func() (int64, error)
	changes            func(from, end string, after, until int64, bytes int) ([]storage.Event, int64, int64, error)
	prefix             string
	defaultReadOptions []clientv3.OpOption
	log                *slog.Logger
	metrics            *metrics
	leasePool          *leasePool
	// compacted is the newest compaction known to this process, a hint for errors that do not carry
	// it.
	compacted atomic.Int64
}

var _ storage.Interface = (*Store)(nil)

// New returns a Store. It does not connect to etcd.
func New(cfg Config) (*Store, error) {
	// 1. Complete the configuration.
	if cfg.Client == nil {
		return nil, errors.New("etcd store: no client")
	}
	if cfg.Watch == nil {
		conn := cfg.Client.ActiveConnection()
		if conn == nil {
			return nil, errors.New("etcd store: the client has no connection, so Config.Watch is needed")
		}
		cfg.Watch = pb.NewWatchClient(conn)
	}
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if cfg.LeaseReuse == 0 {
		cfg.LeaseReuse = DefaultLeaseReuse
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Cluster == "" {
		cfg.Cluster = mainCluster
	}

	// 2. Create the metrics. The embedded etcd provides its size and has no metrics of members.
	var members *memberCollector
	if cfg.Size == nil {
		members = newMemberCollector(cfg.Client, cfg.Cluster, cfg.Logger)
		cfg.Size = func(ctx context.Context) (int64, error) { return sizeOf(ctx, cfg.Client) }
	}
	m, err := newMetrics(cfg.Metrics, cfg.Prefix, sizeCollector{size: cfg.Size, log: cfg.Logger, cluster: cfg.Cluster}, members)
	if err != nil {
		return nil, err
	}

	// 3. Create the store.
	store := &Store{
		client:        cfg.Client,
		kv:            cfg.Client.KV,
		watches:       cfg.Watch,
		localRevision: cfg.LocalRevision,
		changes:       cfg.Changes,
		prefix:        cfg.Prefix,
		log:           cfg.Logger,
		metrics:       m,
		leasePool:     &leasePool{client: cfg.Client.Lease, reuse: cfg.LeaseReuse, objects: m.leaseObjects, lock: make(chan struct{}, 1)},
	}
	if cfg.LocalRevision != nil {
		store.defaultReadOptions = []clientv3.OpOption{clientv3.WithSerializable()}
	}
	return store, nil
}

// Get implements storage.Interface.
func (s *Store) Get(ctx context.Context, key string, revision int64) (_ storage.KeyValue, at int64, err error) {
	defer s.metrics.observe("get", key, time.Now(), &err)
	resp, err := s.kv.Get(ctx, key, s.readOptions(revision)...)
	if err != nil {
		return storage.KeyValue{}, 0, s.readError(ctx, err)
	}
	at = revision
	if at == 0 {
		at = resp.Header.Revision
	}
	if len(resp.Kvs) == 0 {
		return storage.KeyValue{}, at, storage.ErrNotFound
	}
	return toKeyValue(resp.Kvs[0]), at, nil
}

// List implements storage.Interface. The whole list is read at one revision, regardless of its
// length.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (_ storage.ListResult, err error) {
	defer s.metrics.observe("list", prefix, time.Now(), &err)
	from, end := prefixRange(prefix)
	if opts.StartKey > from {
		from = opts.StartKey
	}
	res := storage.ListResult{Revision: opts.Revision}
	page, bytesRead := int64(firstPage), 0 // page is the number of keys of the next page
	if opts.Average > 0 {
		page = nextPage(opts.Average, 1)
	}
	for first := true; ; first = false {
		if remaining := opts.Limit - int64(len(res.Items)); opts.Limit > 0 && remaining < page {
			page = remaining
		}

		// The first page determines the revision of all others.
		resp, err := s.kv.Get(ctx, from, append(s.readOptions(res.Revision), clientv3.WithRange(end), clientv3.WithLimit(page))...)
		if err != nil {
			return storage.ListResult{}, s.readError(ctx, err)
		}
		if first {
			res.Count = resp.Count
			res.Store = resp.Header.GetClusterId()
			if res.Revision == 0 {
				res.Revision = resp.Header.Revision
			}
			expected := resp.Count
			if opts.Limit > 0 {
				expected = min(expected, opts.Limit)
			}
			res.Items = make([]storage.KeyValue, 0, expected)
		}
		for _, kv := range resp.Kvs {
			bytesRead += len(kv.Key) + len(kv.Value)
			res.Items = append(res.Items, toKeyValue(kv))
		}

		if !resp.More {
			return res, nil
		}
		if opts.Limit > 0 && int64(len(res.Items)) >= opts.Limit {
			res.HasMore = true
			return res, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		page = nextPage(bytesRead, len(res.Items))
	}
}

// nextPage returns the number of keys that are likely to fill a page, given the total size in bytes
// of some items.
func nextPage(bytesRead, items int) int64 {
	average := max(bytesRead/max(items, 1), 1)
	return int64(min(max(pageBytes/average, 1), maxPage))
}

// Revision implements storage.Interface.
func (s *Store) Revision(ctx context.Context) (_ int64, err error) {
	defer s.metrics.observe("revision", s.prefix, time.Now(), &err)
	return s.readRevision(ctx)
}

// readRevision reads the root, a key that never exists: the response is only a header.
func (s *Store) readRevision(ctx context.Context) (int64, error) {
	if s.localRevision != nil {
		newest, err := s.localRevision()
		if err != nil {
			return 0, s.translateError(ctx, err)
		}
		return newest, ctx.Err()
	}
	resp, err := s.hedgedGet(ctx, s.prefix, s.defaultReadOptions...)
	if err != nil {
		return 0, s.translateError(ctx, err)
	}
	return resp.Header.Revision, nil
}

// Ping checks that etcd responds to a linearizable read, for health checks. The context bounds it.
// Other operations wait for a connection and report only a timeout. Ping reports why there is no
// connection.
func (s *Store) Ping(ctx context.Context) error {
	var err error
	if conn := s.client.ActiveConnection(); conn != nil {
		_, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte(s.prefix + "health")})
	} else {
		_, err = s.kv.Get(ctx, s.prefix+"health")
	}
	if err != nil {
		return s.translateError(ctx, err)
	}
	return nil
}

// Compact implements storage.Interface.
func (s *Store) Compact(ctx context.Context, revision int64) (err error) {
	defer s.metrics.observe("compact", s.prefix, time.Now(), &err)
	if _, err := s.kv.Compact(ctx, revision); err != nil {
		return s.readError(ctx, err)
	}
	s.noteCompacted(revision)
	return nil
}

// noteCompacted records a compaction unless a newer one is known.
func (s *Store) noteCompacted(revision int64) {
	for {
		known := s.compacted.Load()
		if revision <= known || s.compacted.CompareAndSwap(known, revision) {
			return
		}
	}
}

func (s *Store) readOptions(revision int64) []clientv3.OpOption {
	if revision == 0 {
		return s.defaultReadOptions[:len(s.defaultReadOptions):len(s.defaultReadOptions)]
	}
	// Never serializable: a lagging member would treat the revision as future.
	return []clientv3.OpOption{clientv3.WithRev(revision)}
}

// prefixRange returns the range of keys that start with prefix.
func prefixRange(prefix string) (from, end string) {
	if prefix == "" {
		return "\x00", "\x00"
	}
	return prefix, clientv3.GetPrefixRangeEnd(prefix)
}

// toKeyValue converts a value of etcd to one of the contract.
func toKeyValue(kv *mvccpb.KeyValue) storage.KeyValue {
	return storage.KeyValue{
		Key:            string(kv.Key),
		Value:          kv.Value,
		ModRevision:    kv.ModRevision,
		CreateRevision: kv.CreateRevision,
	}
}

// bytesAsString passes a value through the string parameters of clientv3, which converts them back
// to bytes, without the first of two copies. The store never changes a value.
func bytesAsString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// hedgeDelay is the time after which hedgedGet repeats a read in parallel. It doubles with each
// attempt.
const hedgeDelay = 500 * time.Millisecond

// getResult is the response to one of several parallel reads.
type getResult struct {
	resp *clientv3.GetResponse
	err  error
}

// hedgedGet reads a key such that a single stalled member cannot block it. A stalled member keeps its
// connections and does not respond until keepalives detect it. All consistent reads wait for a read
// of the newest revision, so hedgedGet repeats that read in parallel on another member. All attempts
// start after the call, so any response is valid.
func (s *Store) hedgedGet(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if s.localRevision != nil || len(s.client.Endpoints()) < 2 {
		return s.kv.Get(ctx, key, opts...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan getResult)
	get := func() {
		var result getResult
		result.resp, result.err = s.kv.Get(ctx, key, opts...)
		select {
		case results <- result:
		case <-ctx.Done():
		}
	}
	go get() // ends with the context, like all further attempts
	delay := hedgeDelay
	hedge := time.NewTimer(delay)
	defer hedge.Stop()
	for {
		select {
		case result := <-results:
			return result.resp, result.err
		case <-hedge.C:
			go get()
			delay *= 2
			hedge.Reset(delay)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
