package tokenreviews

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authn"
)

// Config configures a Cache.
type Config struct {
	// Token reviews tokens that are not cached.
	Token authenticator.Token
	// Audiences of the server, used if the caller gives none.
	Audiences []string
	// SuccessTTL and FailureTTL bound how long results are cached.
	SuccessTTL, FailureTTL time.Duration
	// Timeout bounds a review.
	Timeout time.Duration
	// Objects looks up objects in this server.
	Objects satoken.Objects
	// Legacy follows tokens that live in secrets; may be nil.
	Legacy     LegacyTokens
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// LegacyTokens follows the use of service account tokens that live in secrets. It covers tokens
// that this server or a token webhook reviewed.
type LegacyTokens interface {
	// Warnings returns the warnings for the client of an accepted token.
	Warnings(ctx context.Context, t LegacyToken) []string
	// Used is called after the review of a token, whether or not it was accepted.
	Used(ctx context.Context, t LegacyToken)
}

// LegacyToken is a reviewed token that names a secret.
type LegacyToken struct {
	Token    string
	Accepted bool
	// User is the user name of the service account.
	User              string
	Namespace, Secret string
}

// Bounds of the cached results.
const (
	maxSuccesses = 16384
	maxFailures  = 4096
)

// Cache reviews tokens and caches the results.
type Cache struct {
	config  Config
	keys    *keyHasher
	metrics *cacheMetrics
	// following means that Run receives the events of all objects. Otherwise nothing is cached.
	following atomic.Bool
	failing   atomic.Bool // so that an outage is logged once

	successes, failures *expirable.LRU[cacheKey, *cachedReview]
	index               dependencyIndex

	mu       sync.Mutex // before the locks of successes and failures, which come before index.mu
	inFlight map[cacheKey]*inFlightReview
}

// cachedReview is the result of a review, and the objects that it depends on.
type cachedReview struct {
	review  *authn.Review
	until   time.Time
	objects []object
}

// inFlightReview is a running review, which all requests with the same token and audiences share.
type inFlightReview struct {
	objects  []object
	outdated bool // an event has outdated the review; guarded by Cache.mu
	waiters  int  // the number of requests that wait for the review; guarded by Cache.mu
	// awaited is canceled when no request waits for the review any more. A review that waits for a
	// slot then ends. A call of another server that has started continues.
	awaited       context.Context
	cancelAwaited context.CancelFunc // nil for a completed flight
	waitsForSlot  atomic.Bool        // the review waits for a slot to call another server
	done          chan struct{}
	// review and err are set before done is closed.
	review *authn.Review
	err    error
}

// New returns a cache. The cache stays empty until Run follows the objects.
func New(config Config) (*Cache, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	cache := &Cache{config: config, inFlight: map[cacheKey]*inFlightReview{}}
	var err error
	if cache.keys, err = newKeyHasher(); err != nil {
		return nil, err
	}
	evicted := func(k cacheKey, entry *cachedReview) { cache.index.remove(k, entry.objects) }
	cache.successes = expirable.NewLRU(maxSuccesses, evicted, config.SuccessTTL)
	cache.failures = expirable.NewLRU(maxFailures, evicted, config.FailureTTL)
	cache.metrics = newMetrics(config.Registerer, func() float64 { return float64(cache.successes.Len()) })
	return cache, nil
}

// Review implements authn.Tokens.
func (c *Cache) Review(ctx context.Context, token string, audiences []string) (*authn.Review, error) {
	if len(token) > authenticator.MaxTokenBytes {
		return &authn.Review{Error: authenticator.ErrTooLong.Error()}, nil
	}
	start := c.config.Now()
	if len(audiences) == 0 {
		audiences = c.config.Audiences
	}
	k := c.keys.keyOf(token, audiences)
	if entry := c.cachedResult(k, start); entry != nil {
		c.metrics.hits.Observe(c.config.Now().Sub(start).Seconds())
		return entry.review, nil
	}
	f := c.joinFlight(ctx, k, token, audiences)
	defer c.leaveFlight(k, f)
	select {
	case <-f.done:
		c.metrics.miss.Observe(c.config.Now().Sub(start).Seconds())
		return f.review, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the review of a token: %w", ctx.Err())
	}
}

// cachedResult returns the cached result for a token if it is still valid.
func (c *Cache) cachedResult(k cacheKey, now time.Time) *cachedReview {
	a, ok := c.successes.Get(k)
	if !ok {
		a, ok = c.failures.Get(k)
	}
	if !ok || !now.Before(a.until) {
		return nil
	}
	return a
}

// flightKey is the context key of a flight.
type flightKey struct{}

// joinFlight joins the flight of a token, or starts one. The caller must call
// leaveFlight.
func (c *Cache) joinFlight(ctx context.Context, key cacheKey, token string, audiences []string) *inFlightReview {
	claims := unverifiedClaims(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	if flight := c.inFlight[key]; flight != nil {
		flight.waiters++
		return flight
	}
	if entry := c.cachedResult(key, c.config.Now()); entry != nil { // another flight of the token has just ended
		return completedFlight(entry)
	}
	flight := &inFlightReview{objects: claims.Objects, waiters: 1, done: make(chan struct{})}
	// The review serves all waiting requests, so it must not end with the first one. It counts for
	// the network of the first one.
	principal := request.Principal(ctx)
	ctx, state := request.Derive(request.Detach(ctx))
	state.Principal = principal
	flight.awaited, flight.cancelAwaited = context.WithCancel(ctx)
	c.inFlight[key] = flight
	c.index.add(key, flight.objects)
	go c.runReview(context.WithValue(ctx, flightKey{}, flight), flight, key, token, audiences, claims)
	return flight
}

// leaveFlight records that a request no longer waits for a flight.
func (c *Cache) leaveFlight(key cacheKey, flight *inFlightReview) {
	c.mu.Lock()
	defer c.mu.Unlock()
	flight.waiters--
	if flight.waiters == 0 && flight.cancelAwaited != nil {
		flight.cancelAwaited()
		if c.inFlight[key] == flight && flight.waitsForSlot.Load() { // the review ends unfinished; a later request needs another review
			flight.outdated = true
			delete(c.inFlight, key)
		}
	}
}

// completedFlight returns a completed flight.
func completedFlight(entry *cachedReview) *inFlightReview {
	flight := &inFlightReview{done: make(chan struct{}), review: entry.review}
	close(flight.done)
	return flight
}

// runReview reviews a token and caches the result.
func (c *Cache) runReview(
	ctx context.Context,
	flight *inFlightReview,
	key cacheKey,
	token string,
	audiences []string,
	claims satoken.UnverifiedClaims,
) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	c.metrics.active.Inc()
	response, authenticated, err := c.authenticate(ctx, token, audiences)
	c.metrics.active.Dec()
	if err == nil && !authenticated {
		err = ctx.Err() // the reviewer may have run out of time
	}
	undecided := !authenticated && (errors.Is(err, authenticator.ErrUnavailable) || ctx.Err() != nil)
	c.recordReview(undecided, err)
	entry := c.resultOf(response, authenticated, err, claims)
	legacy := c.legacyToken(response, authenticated, undecided, claims, token)
	if legacy != nil && authenticated {
		entry.review.Warnings = c.config.Legacy.Warnings(ctx, *legacy)
	}
	// A service may quote the token in its error.
	if token != "" && entry.review.Error != authn.UnknownToken {
		entry.review.Error = strings.ReplaceAll(entry.review.Error, token, "<token>")
	}
	if undecided {
		flight.err = fmt.Errorf("review of a token: %w", err)
	}
	flight.review = entry.review
	cached := c.completeFlight(flight, key, entry, undecided)
	close(flight.done)
	if cached && authenticated && !c.allExist(ctx, entry.objects) {
		c.successes.Remove(key)
	}
	if legacy != nil {
		c.config.Legacy.Used(ctx, *legacy)
	}
}

// legacyToken returns the reviewed token if it names a secret, and nil otherwise. The hint comes
// from an unverified token, so the user of an accepted token must match it.
func (c *Cache) legacyToken(
	response *authenticator.Response,
	authenticated, undecided bool,
	claims satoken.UnverifiedClaims,
	token string,
) *LegacyToken {
	if c.config.Legacy == nil || claims.Legacy == nil || undecided || authenticated && claims.User != response.User.Name {
		return nil
	}
	return &LegacyToken{
		Token:     token,
		Accepted:  authenticated,
		User:      claims.User,
		Namespace: claims.Legacy.Namespace,
		Secret:    claims.Legacy.Name,
	}
}

// authenticate calls the reviewer. Several libraries process tokens: a panic in one of them means
// that the review failed, and does not crash the server.
func (c *Cache) authenticate(
	ctx context.Context,
	token string,
	audiences []string,
) (response *authenticator.Response, ok bool, err error) {
	panicked := task.Protect(func() (err error) {
		response, ok, err = c.config.Token.AuthenticateToken(ctx, token, audiences)
		return err
	})
	if p := new(task.PanicError); errors.As(panicked, &p) {
		c.config.Logger.Error("panic while a token was reviewed", "panic", p.Value, "stack", string(p.Stack))
		return nil, false, authenticator.Unavailable(errors.New("the review failed"))
	}
	return response, ok, panicked
}

// resultOf returns the result of a review as it is cached, with the objects that it depends on.
func (c *Cache) resultOf(response *authenticator.Response, authenticated bool, err error, claims satoken.UnverifiedClaims) *cachedReview {
	now := c.config.Now()
	entry := &cachedReview{
		objects: claims.Objects,
		until:   now.Add(c.config.FailureTTL),
		review:  &authn.Review{Error: authn.UnknownToken},
	}
	if !authenticated {
		if err != nil {
			entry.review.Error = err.Error()
			entry.review.AuditAnnotations = authenticator.AuditAnnotationsOf(err)
		}
		return entry
	}
	user := request.User(response.User)
	entry.review = &authn.Review{
		Authenticated:    true,
		User:             *authn.Authenticated(&user),
		Audiences:        response.Audiences,
		AuditAnnotations: response.AuditAnnotations,
	}
	entry.until = now.Add(c.config.SuccessTTL)
	for _, end := range []time.Time{claims.Expires, response.Expires} {
		if !end.IsZero() && end.Before(entry.until) {
			entry.until = end
		}
	}
	entry.objects = withUserObjects(entry.objects, &response.User)
	return entry
}

// completeFlight completes a flight and caches its result, unless an event outdated it.
func (c *Cache) completeFlight(flight *inFlightReview, key cacheKey, entry *cachedReview, undecided bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.index.remove(key, flight.objects)
	if flight.outdated {
		return false
	}
	delete(c.inFlight, key)
	if undecided || !c.following.Load() || !entry.until.After(c.config.Now()) {
		return false
	}
	// Existing entries are removed first: overwriting one does not evict it, so it would stay in
	// the index.
	c.successes.Remove(key)
	c.failures.Remove(key)
	c.index.add(key, entry.objects)
	if entry.review.Authenticated {
		c.successes.Add(key, entry)
	} else {
		c.failures.Add(key, entry)
	}
	return true
}

// invalidate removes the results that depend on an object.
func (c *Cache) invalidate(o object) {
	keys := c.index.dependentKeys(o)
	if len(keys) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		c.invalidateKey(k)
	}
	c.metrics.dropped.Add(float64(len(keys)))
}

// invalidateKey removes a result, and outdates the running review. The caller holds mu.
func (c *Cache) invalidateKey(k cacheKey) {
	if f := c.inFlight[k]; f != nil {
		f.outdated = true
		delete(c.inFlight, k)
	}
	c.successes.Remove(k)
	c.failures.Remove(k)
}

// Forget removes all cached results and outdates running reviews.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.inFlight {
		c.invalidateKey(k)
	}
	c.successes.Purge()
	c.failures.Purge()
}

// recordReview counts a review. It logs when reviews begin to fail and when they recover.
func (c *Cache) recordReview(undecided bool, err error) {
	if !undecided {
		c.metrics.fetched.Inc()
		if c.failing.CompareAndSwap(true, false) {
			c.config.Logger.Info("token webhook reachable again")
		}
		return
	}
	c.metrics.failed.Inc()
	if c.failing.CompareAndSwap(false, true) {
		c.config.Logger.Error("token webhook unreachable; uncached tokens get 401", "error", err)
	}
}
