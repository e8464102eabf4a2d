package conns

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	"binnacle/libs/limit"
	"binnacle/libs/serving/h2"
)

// Limits on HTTP/2 frames. Clients that cancel hundreds of watches, or download hundreds of
// megabytes, stay far below them.
const (
	// The token buckets of a connection: tokens per second, capacity, and tokens at the start. A
	// RST_STREAM frame costs a token of the first, any other control frame a token of the second.
	resetRate, resetBurst, resetStart       = 100, 1000, 100
	controlRate, controlBurst, controlStart = 2000, 20_000, 2000
	// resetBurstSeconds is the capacity of the bucket of an address, as a multiple of its rate.
	resetBurstSeconds = resetBurst / resetRate
	// bytesPerControlFrame is the number of sent bytes that add a token for one control frame,
	// because a client that reads much sends many WINDOW_UPDATE frames.
	bytesPerControlFrame = 256
	// controlPerDataFrame is the number of tokens for control frames that each sent DATA frame
	// adds: for a WINDOW_UPDATE of its stream and one of the connection.
	controlPerDataFrame = 2
	// headerPermitTimeout is how long a large header section waits for a permit. After that it is
	// parsed without one, because another one takes too long.
	headerPermitTimeout = 10 * time.Second
	// maxDelay limits one delay. The remaining debt stays.
	maxDelay = time.Second
)

// ServeHTTP2 configures server to serve HTTP/2 with package h2 and limited frame rates. resets is
// the number of streams that the connections of an address may reset together in a second.
func ServeHTTP2(server *http.Server, config h2.Config, resets int, metrics *Metrics, headers *HeaderLimits) error {
	if err := http2.ConfigureServer(server, nil); err != nil { // configures ALPN
		return err
	}
	frames := h2.NewServer(config)
	server.RegisterOnShutdown(frames.Shutdown)
	addresses := newAddressBuckets(resets)
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		http2.NextProtoTLS: func(_ *http.Server, conn *tls.Conn, handler http.Handler) {
			ctx := context.Background()
			if b, ok := handler.(interface{ BaseContext() context.Context }); ok { // the context of the connection
				ctx = b.BaseContext()
			}
			paced := newPacedConn(conn, metrics, addresses)
			paced.headers = headers
			defer addresses.removeConn(paced.sharedBucket)
			frames.ServeConn(ctx, paced, handler)
			paced.ReserveHeader(0)
		},
	}
	return nil
}

// pacedConn is the h2.Wire of a connection. It reads more slowly from a client that resets streams
// or sends control frames at a higher rate than ordinary clients do. Other connections are not
// affected. A new connection starts with a smaller burst, so that reconnecting gains nothing.
type pacedConn struct {
	*tls.Conn
	below     *Conn // may be nil
	metrics   *Metrics
	headers   *HeaderLimits   // nil for no limits
	hasPermit bool            // holds a permit for large headers; used by the reader only
	reserved  int             // bytes reserved in headers
	ctx       context.Context // ends when the connection is closed
	cancel    context.CancelFunc

	addresses    *addressBuckets
	sharedBucket *addressBucket

	mu                         sync.Mutex // addresses.mu is taken under it
	resetBucket, controlBucket tokenBucket
	hasNewResets               bool // streams were reset since the last readDelay
}

// newPacedConn returns a connection whose buckets are partly filled.
func newPacedConn(conn *tls.Conn, metrics *Metrics, addresses *addressBuckets) *pacedConn {
	now := time.Now()
	below, _ := conn.NetConn().(*Conn)
	ctx, cancel := context.WithCancel(context.Background())
	return &pacedConn{
		Conn: conn, below: below, metrics: metrics, ctx: ctx, cancel: cancel,
		addresses: addresses, sharedBucket: addresses.addConn(clientNetwork(conn), now),
		resetBucket:   tokenBucket{tokens: resetStart, rate: resetRate, burst: resetBurst, refilledAt: now},
		controlBucket: tokenBucket{tokens: controlStart, rate: controlRate, burst: controlBurst, refilledAt: now},
	}
}

// FramesReceived implements h2.Wire. It takes the frames from the token buckets.
func (c *pacedConn) FramesReceived(resets, control int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spendResets(resets)
	c.controlBucket.tokens -= float64(control)
}

// FramesSent implements h2.Wire. Streams that the server resets also cost a token, because the
// client causes nearly all of them. Sent data adds tokens for WINDOW_UPDATE frames, so clients with
// small windows are not delayed.
func (c *pacedConn) FramesSent(resets, frames, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spendResets(resets)
	c.controlBucket.tokens = min(c.controlBucket.burst,
		c.controlBucket.tokens+controlPerDataFrame*float64(frames)+float64(bytes)/bytesPerControlFrame)
}

// Delivered implements h2.Wire.
func (c *pacedConn) Delivered() (acknowledged, outstanding int64) {
	if c.below == nil {
		return 0, 0
	}
	return c.below.Delivered()
}

// Cork implements h2.Wire. Written TLS records are held until Uncork and leave together.
func (c *pacedConn) Cork() {
	if c.below != nil {
		c.below.Cork()
	}
}

// Uncork implements h2.Wire.
func (c *pacedConn) Uncork() error {
	if c.below == nil {
		return nil
	}
	return c.below.Uncork()
}

// AcquireHeaderPermit implements h2.Wire. Permits are shared fairly by address, because the user of
// the request is not known yet.
func (c *pacedConn) AcquireHeaderPermit() {
	c.hasPermit = c.headers != nil && c.headers.acquirePermit(c.ctx, c.sharedBucket.address)
}

// ReserveHeader implements h2.Wire.
func (c *pacedConn) ReserveHeader(n int) bool {
	if c.headers == nil || n == c.reserved {
		return true
	}
	if !c.headers.reserveBytes(c.sharedBucket.address, n-c.reserved) {
		return false
	}
	c.reserved = n
	return true
}

// ReleaseHeaderPermit implements h2.Wire.
func (c *pacedConn) ReleaseHeaderPermit() {
	if c.hasPermit {
		c.hasPermit = false
		c.headers.limiter.Release(limit.Claim[string]{})
	}
}

// spendResets takes tokens for resets from the buckets of the connection and of its address. The
// caller holds mu.
func (c *pacedConn) spendResets(resets int) {
	if resets == 0 {
		return
	}
	c.hasNewResets = true
	c.resetBucket.tokens -= float64(resets)
	c.addresses.mu.Lock()
	c.sharedBucket.tokens -= float64(resets)
	c.addresses.mu.Unlock()
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

// readDelay returns how long the next read must be delayed, and the counter of the reason. A
// connection without resets is not delayed for the resets of other connections of its address.
func (c *pacedConn) readDelay() (time.Duration, prometheus.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasNewResets && c.resetBucket.tokens >= 0 && c.controlBucket.tokens >= 0 {
		return 0, nil
	}
	now := time.Now()
	debt, control := c.resetBucket.refillAndDelay(now), c.controlBucket.refillAndDelay(now)
	if c.hasNewResets {
		c.hasNewResets = false
		c.addresses.mu.Lock()
		debt = max(debt, c.sharedBucket.refillAndDelay(now))
		c.addresses.mu.Unlock()
	}
	if control > debt {
		return control, c.metrics.controlDelay
	}
	return debt, c.metrics.resetDelay
}

// Throttle implements h2.Wire. It waits until no bucket is in debt, at most maxDelay.
func (c *pacedConn) Throttle() {
	debt, counter := c.readDelay()
	if debt <= 0 {
		return
	}
	debt = min(debt, maxDelay)
	counter.Add(debt.Seconds())
	timer := time.NewTimer(debt)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// addressBuckets holds the token buckets that the connections of an address share.
type addressBuckets struct {
	rate    float64    // resets per second
	mu      sync.Mutex // leaf lock
	buckets map[string]*addressBucket
}

func newAddressBuckets(resets int) *addressBuckets {
	return &addressBuckets{rate: float64(resets), buckets: map[string]*addressBucket{}}
}

// addressBucket is the token bucket of an address. It is removed with its last connection.
type addressBucket struct {
	tokenBucket
	address     string
	connections int
}

// addConn returns the bucket of an address, and counts a new connection of the address. removeConn
// undoes that.
func (a *addressBuckets) addConn(network string, now time.Time) *addressBucket {
	a.mu.Lock()
	defer a.mu.Unlock()
	bucket := a.buckets[network]
	if bucket == nil {
		bucket = &addressBucket{
			tokenBucket: tokenBucket{tokens: a.rate, rate: a.rate, burst: resetBurstSeconds * a.rate, refilledAt: now},
			address:     network,
		}
		a.buckets[network] = bucket
	}
	bucket.connections++
	return bucket
}

func (a *addressBuckets) removeConn(bucket *addressBucket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bucket.connections--
	if bucket.connections == 0 {
		delete(a.buckets, bucket.address)
	}
}

// tokenBucket limits a rate. tokens may become negative, which is a debt. Only refillAndDelay adds
// the tokens for the elapsed time.
type tokenBucket struct {
	tokens, rate, burst float64 // rate is in tokens per second; burst is the capacity
	refilledAt          time.Time
}

// refillAndDelay refills the bucket. It returns how long it takes until the debt is paid; without a
// debt the result is not positive.
func (b *tokenBucket) refillAndDelay(now time.Time) time.Duration {
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.refilledAt).Seconds())
	b.refilledAt = now
	return time.Duration(-b.tokens / b.rate * float64(time.Second))
}
