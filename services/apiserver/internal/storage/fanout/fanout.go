package fanout

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage"
)

// DefaultHeartbeat is the time without changes after which a publisher sends a heartbeat.
const DefaultHeartbeat = time.Second

// Page sizes of Load, in values: the first page measures the size of values, later ones hold about
// pageBytes. For each page etcd counts all remaining keys, so a page is as large as memory allows.
const (
	firstPage = 500
	maxPage   = 3_000
	pageBytes = 16 << 20
)

// Elector elects one of the replicas that campaign under a name.
type Elector interface {
	// Campaign blocks until id is elected, or until ctx ends. lost is closed when the leadership is
	// onLost, before another replica can be elected. resign gives it up. Between two terms the
	// store's revision grows.
	Campaign(ctx context.Context, name, id string) (lost <-chan struct{}, resign func(), err error)
}

// Config configures a Fanout.
type Config struct {
	// Options must be valid.
	Options Options
	Store   storage.Interface
	// Elector is unused, and may be nil, without NATS servers.
	Elector Elector
	// Root is the prefix of all followed keys: "/registry/".
	Root string
	// ID identifies this replica in the election and to NATS.
	ID         string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Since returns the revision at which history should begin at start-up, or 0 for no history.
	// Load then reads the state of that revision, if the store still has it, and Follow delivers
	// the changes since. Since may be nil.
	Since func(context.Context) int64
	// Heartbeat defaults to DefaultHeartbeat. It must be equal in all replicas.
	Heartbeat time.Duration
}

// Fanout is one replica's end of the stream. It is safe for concurrent use.
type Fanout struct {
	options                       Options
	store                         storage.Interface
	elector                       Elector
	root, id                      string
	cluster                       string
	changeSubject, requestSubject string
	traceSubject                  string // for notes about traced writes
	log                           *slog.Logger
	heartbeat                     time.Duration
	metrics                       *metrics

	// dial creates the transport. nil means NATS as configured by the options.
	dial      dialer
	transport transport // set by Run before its first use
	running   atomic.Bool
	// since returns the revision of the first Load, or 0 for the newest one. It may be nil.
	since         func(context.Context) int64
	loaded        atomic.Bool               // Load has succeeded
	connected     atomic.Pointer[transport] // transport, once it is usable
	link          linkState
	inbox         *inbox
	parts         partAssembler // of received messages, used by the goroutine of receive
	audience      subscriberTracker
	publisher     atomic.Pointer[publisher]
	followerState followerState
	// deliveries records spans of changes. It is nil without tracing.
	deliveries *deliveries

	mu            sync.Mutex // guards the fields below; leaf lock
	currentSource string
	sourceSince   time.Time // when the source was last switched
	sourceChanges int
}

// New returns a Fanout. Load and Follow work immediately, from the store. The stream is joined once
// Run runs.
func New(cfg Config) (*Fanout, error) {
	if err := cfg.Options.Validate(); err != nil {
		return nil, err
	}
	switch {
	case cfg.Store == nil || cfg.Logger == nil || cfg.Root == "" || cfg.ID == "":
		return nil, errors.New("fanout needs a store, a logger, a root and an id")
	case cfg.Elector == nil && !cfg.Options.alone():
		return nil, errors.New("fanout needs an elector")
	case cfg.Heartbeat < 0:
		return nil, errors.New("the heartbeat interval is negative")
	}
	fanout := &Fanout{
		options:       cfg.Options,
		store:         cfg.Store,
		elector:       cfg.Elector,
		root:          cfg.Root,
		id:            cfg.ID,
		cluster:       cfg.Options.ClusterID,
		log:           cfg.Logger.With("component", "fanout"),
		heartbeat:     cfg.Heartbeat,
		currentSource: sourceNone,
		sourceSince:   time.Now(),
		since:         cfg.Since,
	}
	if fanout.options.alone() {
		fanout.dial = dialIsolated
		fanout.elector = nil
		fanout.audience.alone = true
	}
	if fanout.heartbeat == 0 {
		fanout.heartbeat = DefaultHeartbeat
	}
	fanout.audience.lastRequest.start(time.Now)
	fanout.followerState.lastApplied.start(time.Now)
	fanout.inbox = newInbox()
	fanout.changeSubject = "binnacle." + fanout.cluster + ".changes"
	fanout.requestSubject = "binnacle." + fanout.cluster + ".ask"
	fanout.traceSubject = "binnacle." + fanout.cluster + ".traces"
	fanout.link.start()
	var err error
	fanout.metrics, err = newMetrics(fanout, cfg.Registerer)
	return fanout, err
}

// Run connects, takes part in the election and publishes when elected, until ctx ends; then it
// returns nil. An error means that the NATS configuration is unusable. An unreachable server is not
// an error: Run retries without limit.
func (f *Fanout) Run(ctx context.Context) error {
	if !f.running.CompareAndSwap(false, true) {
		return errors.New("fanout has been run already")
	}

	// 1. Connect.
	dial := f.dial
	if dial == nil {
		dial = natsDialer(f.options, f.id, f.heartbeat, f.log)
	}
	connected, err := dial(linkEvents{onUp: f.linkUp, onDown: f.linkDown, onLost: func() { f.inbox.markLost(reasonSlow) }})
	if err != nil {
		return err
	}
	defer connected.close()
	f.transport = connected

	// 2. Subscribe.
	if err := connected.subscribe(f.changeSubject, f.handleMessage); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := connected.subscribe(f.requestSubject, f.handleRequest); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if f.deliveries != nil {
		if err := connected.subscribeWithHeader(f.traceSubject, f.handleNote); err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
	}

	// 3. Publish whenever this replica is elected.
	f.connected.Store(&connected)
	defer f.connected.Store(nil)
	f.requestHeartbeat()
	f.campaignRepeatedly(ctx)
	return nil
}

// linkUp records that the connection to NATS is up.
func (f *Fanout) linkUp() {
	f.link.setUp(true)
	f.log.Debug("connected to NATS")
	f.requestHeartbeat()
}

// linkDown records that the connection to NATS is down.
func (f *Fanout) linkDown(err error) {
	f.link.setUp(false)
	f.inbox.markLost(reasonLink)
	f.metrics.disconnects.Inc()
	if err != nil {
		f.log.Warn("connection to NATS lost", "error", err)
	}
}

// handleMessage handles a message from the network.
func (f *Fanout) handleMessage(data []byte) {
	f.metrics.recordReceived(len(data))
	m, err := decodeMessage(data)
	if err != nil {
		f.metrics.ignored.WithLabelValues("damaged").Inc()
		f.log.Debug("received a message that cannot be used", "bytes", len(data), "error", err)
		f.inbox.markLost(reasonDamaged)
		return
	}
	if m.cluster != f.cluster {
		f.metrics.ignored.WithLabelValues("cluster").Inc()
		return
	}
	if m.part != nil {
		f.receivePart(m)
		return
	}
	if !f.inbox.push(*m) {
		f.metrics.ignored.WithLabelValues("chain").Inc()
	}
}

// receivePart handles a part of a message, and the whole message once it is complete.
func (f *Fanout) receivePart(m *message) {
	f.inbox.recordPart(m.chain)
	data, ok := f.parts.addPart(m)
	if !ok {
		return
	}
	complete, err := decodeMessage(data)
	if err != nil || complete.part != nil || !complete.hasHeadOf(m) {
		f.metrics.ignored.WithLabelValues("damaged").Inc()
		f.inbox.markLost(reasonDamaged)
		return
	}
	if !f.inbox.push(*complete) {
		f.metrics.ignored.WithLabelValues("chain").Inc()
	}
}

// hasHeadOf reports whether the message has the same cluster, chain and revisions as another one.
func (m *message) hasHeadOf(other *message) bool {
	return m.cluster == other.cluster && m.epoch == other.epoch && m.chain == other.chain &&
		m.previous == other.previous && m.revision == other.revision
}

// handleRequest handles a replica's request for a heartbeat or for a check of the store.
func (f *Fanout) handleRequest(data []byte) {
	f.audience.recordRequest()
	p := f.publisher.Load()
	switch {
	case p == nil:
	case len(data) == answerBytes:
		p.queueJoinRequest(binary.LittleEndian.Uint64(data))
	default:
		p.requestProgress()
	}
}

// requestHeartbeat requests a heartbeat from the publisher. If the request cannot be sent, the
// follower notices that it stays unanswered.
func (f *Fanout) requestHeartbeat() {
	if p := f.publisher.Load(); p != nil {
		p.requestProgress()
		return
	}
	if t := f.connected.Load(); t != nil {
		_ = (*t).publish(f.requestSubject, nil)
	}
}

// sendJoinRequest requests that the publisher checks the store again and answers.
func (f *Fanout) sendJoinRequest(request uint64) {
	if p := f.publisher.Load(); p != nil {
		p.queueJoinRequest(request)
		return
	}
	if t := f.connected.Load(); t != nil {
		_ = (*t).publish(f.requestSubject, binary.LittleEndian.AppendUint64(nil, request))
	}
}

// Progress requests a batch that carries the current revision even if nothing changes. It does not
// wait for the batch.
func (f *Fanout) Progress(context.Context) error {
	if feed := f.followerState.feed.Load(); feed != nil {
		feed.requestProgress()
		return nil
	}
	f.inbox.expectHeartbeat()
	f.requestHeartbeat()
	return nil
}

// Load reads everything below the root at one revision and passes it to page in the order of the
// keys. It returns the revision and the identity of the store. It reads the next page while page
// runs.
func (f *Fanout) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	pages := make(chan storage.ListResult, 1)
	var readErr error // set before pages is closed
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(pages)
		readErr = f.readPages(ctx, pages)
	})
	defer func() { cancel(); reading.Wait() }()
	var position storage.Position
	for res := range pages {
		position.Revision = res.Revision
		position.Store = res.Store
		if err := page(res.Items); err != nil {
			return position, err
		}
	}
	if readErr == nil {
		f.loaded.Store(true)
	}
	return position, readErr
}

// readPages sends everything below the root as of the revision of the first page.
func (f *Fanout) readPages(ctx context.Context, pages chan<- storage.ListResult) error {
	opts := storage.ListOptions{Limit: firstPage}
	bytesRead, itemsRead := 0, 0 // for the average size of an item
	if since := f.since; since != nil && !f.loaded.Load() {
		opts.Revision = since(ctx)
	}
	for {
		res, err := f.store.List(ctx, f.root, opts)
		var compacted *storage.CompactedError
		if errors.As(err, &compacted) && opts.StartKey == "" && opts.Revision != 0 {
			opts.Revision = 0 // read the newest state instead
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", f.root, err)
		}
		if opts.Revision == 0 {
			opts.Revision = res.Revision
		}
		res.Revision = opts.Revision
		select {
		case pages <- res:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !res.HasMore || len(res.Items) == 0 {
			return nil
		}
		opts.StartKey = res.Items[len(res.Items)-1].Key + "\x00"
		for i := range res.Items {
			bytesRead += len(res.Items[i].Key) + len(res.Items[i].Value)
		}
		itemsRead += len(res.Items)
		opts.Average = max(bytesRead/itemsRead, 1)
		opts.Limit = int64(min(max(pageBytes/opts.Average, 1), maxPage))
	}
}

// maxSilence returns the time without messages after which a stream counts as broken.
func (f *Fanout) maxSilence() time.Duration { return 3 * f.heartbeat }
