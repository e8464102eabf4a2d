package authzwebhook

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/limit"
	"binnacle/libs/rbac"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
)

// Config configures the calls of a service.
type Config struct {
	// Name is the name of the authorizer in metrics and logs.
	Name string
	// KubeconfigFile holds the address of the service and the client credentials.
	KubeconfigFile string
	// Version is the version of SubjectAccessReview: v1 or v1beta1.
	Version string
	// Timeout bounds a decision, including all attempts.
	Timeout                        time.Duration
	AuthorizedTTL, UnauthorizedTTL time.Duration
	// FailureDecision is the decision if the service is unavailable: NoOpinion or Deny.
	FailureDecision authorizer.Decision
	Conditions      *Conditions
	// MaxWaiting is the maximum number of requests that wait for the service, shared fairly among
	// users, so that a service that hangs does not block all requests of the server. 0 means no
	// limit.
	MaxWaiting int
	// Suspend, if set, is called when a request starts to wait for the service. resume is called
	// when the wait ends.
	Suspend func(context.Context) (resume func())
	Metrics *Metrics
	Calls   *webhookclient.Metrics // may be nil
	Dial    webhookclient.Dial     // nil connects directly
	Logger  *slog.Logger
	Now     func() time.Time
}

// Authorizer calls a service. It implements authorizer.Authorizer and authorizer.RuleResolver.
type Authorizer struct {
	config      Config
	client      *client
	cache       *decisionCache
	flights     singleflight.Group
	hits        prometheus.Counter
	waiting     *limit.Queue[string] // limits the requests that wait for the service
	callCtx     context.Context
	cancelCalls context.CancelFunc
}

// slotTimeout is how long requests beyond MaxWaiting wait for a slot.
const slotTimeout = time.Second

// New reads the kubeconfig. The service need not be reachable yet.
func New(config Config) (*Authorizer, error) {
	created := &Authorizer{config: config, waiting: limit.New[string](limit.Options{Size: config.MaxWaiting, FairShare: true})}
	var err error
	if created.client, err = newClient(config.KubeconfigFile, config.Version, config.Dial); err != nil {
		return nil, err
	}
	created.client.WarnPlain(config.Logger, "authorization webhook "+config.Name)
	created.client.Measure(config.Calls)
	if created.cache, err = newDecisionCache(); err != nil {
		return nil, err
	}
	if created.config.Now == nil {
		created.config.Now = time.Now
	}
	created.hits = config.Metrics.cacheRequests.WithLabelValues(config.Name, "hit")
	created.callCtx, created.cancelCalls = context.WithCancel(context.Background())
	return created, nil
}

// Close cancels running calls. Later ones fail.
func (a *Authorizer) Close() {
	a.cancelCalls()
	a.Retire()
}

// Retire releases unused connections after the configuration was replaced. Running calls finish,
// and requests that started before the replacement may still call the service.
func (a *Authorizer) Retire() { a.client.Close() }

// PolicyChanged invalidates the cached decisions that a change of the policy affects.
// Changes must arrive in order.
func (a *Authorizer) PolicyChanged(c rbac.Change) { a.cache.policyChanged(c, a.config.Now()) }

var (
	errContradictory = errors.New("webhook subject access review returned both allow and deny response")
	errNoRules       = errors.New("webhook authorizer does not support user rule resolution")
)

// RulesFor implements authorizer.RuleResolver. A service does not list rules.
func (*Authorizer) RulesFor(context.Context, *authorizer.User, string) (authorizer.Rules, error) {
	return authorizer.Rules{Incomplete: true}, errNoRules
}

// Authorize implements authorizer.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, attrs *authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.config.Conditions != nil {
		matches, err := a.matchesConditions(ctx, attrs)
		if err != nil {
			return a.config.FailureDecision, "", err
		}
		if !matches {
			return authorizer.NoOpinion, "", nil
		}
	}
	key := a.cache.cacheKeyOf(attrs)
	status, ok, lastChange := a.cache.lookUp(key, scopeOf(attrs), a.config.Now())
	if ok {
		a.hits.Inc()
		return decisionOf(&status)
	}
	if a.config.Suspend != nil {
		defer a.config.Suspend(ctx)()
	}
	response, err := a.callShared(ctx, key, lastChange, attrs)
	switch {
	case errors.Is(err, errReviewTooLarge): // the client's mistake, not a failure of the service
		return a.config.FailureDecision, err.Error(), nil
	case err != nil:
		return a.failureDecision(err)
	}
	return decisionOf(&response.status)
}

// matchesConditions reports whether the match conditions select the request.
func (a *Authorizer) matchesConditions(ctx context.Context, attrs *authorizer.Attributes) (bool, error) {
	spec := attrs.Spec()
	return a.config.Conditions.matchAll(ctx, &spec, a.config.Metrics, a.config.Name)
}

// decisionOf returns the decision that a status states. A denial takes precedence.
func decisionOf(status *authorizationv1.SubjectAccessReviewStatus) (authorizer.Decision, string, error) {
	switch {
	case status.Denied && status.Allowed:
		return authorizer.Deny, status.Reason, errContradictory
	case status.Denied:
		return authorizer.Deny, status.Reason, nil
	case status.Allowed:
		return authorizer.Allow, status.Reason, nil
	}
	return authorizer.NoOpinion, status.Reason, nil
}

// scopeOf returns the namespace of a request, "" for the cluster scope. The decision depends on the
// roles and bindings of that namespace and of the cluster.
func scopeOf(attrs *authorizer.Attributes) string {
	if !attrs.Resource {
		return ""
	}
	return attrs.Namespace
}

// callShared calls the service once for all concurrent equal requests under the same policy.
// lastChange is the number of the last policy change that affects the request.
func (a *Authorizer) callShared(
	ctx context.Context,
	key cacheKey,
	lastChange uint64,
	attrs *authorizer.Attributes,
) (serviceResponse, error) {
	cacheable := !tooLongToCache(attrs)
	if cacheable {
		a.config.Metrics.cacheRequests.WithLabelValues(a.config.Name, "miss").Inc()
	} else {
		a.config.Metrics.cacheRequests.WithLabelValues(a.config.Name, "oversized").Inc()
	}
	slot := limit.Claim[string]{Key: request.Principal(ctx)} // an access review may concern any user
	if err := a.acquireSlot(ctx, slot); err != nil {
		return serviceResponse{}, err
	}
	defer a.waiting.Release(slot)
	scope := scopeOf(attrs)
	spec := attrs.Spec() // shares no memory that the caller changes
	flight := a.flights.DoChan(string(binary.AppendUvarint(key[:], lastChange)), func() (any, error) {
		// An earlier call may have ended between the cache lookup and this point.
		if status, ok, current := a.cache.lookUp(key, scope, a.config.Now()); ok && current == lastChange {
			return serviceResponse{status: status}, nil
		}
		// Other requests may wait for the call after the first one leaves.
		ctx, cancel := context.WithTimeout(a.callCtx, a.config.Timeout)
		defer cancel()
		var response serviceResponse
		// A panic here would crash the process.
		err := task.Protect(func() (err error) {
			response, err = a.reviewNewest(ctx, spec, scope)
			return err
		})
		if err != nil {
			return nil, err
		}
		if cacheable && !response.noStore {
			a.cacheResponse(key, scope, lastChange, response)
		}
		return response, nil
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return serviceResponse{}, r.Err
		}
		return r.Val.(serviceResponse), nil
	case <-ctx.Done():
		return serviceResponse{}, ctx.Err()
	}
}

// acquireSlot waits for a slot to call the service.
func (a *Authorizer) acquireSlot(ctx context.Context, slot limit.Claim[string]) error {
	limited, cancel := context.WithTimeout(ctx, min(slotTimeout, a.config.Timeout))
	defer cancel()
	err := a.waiting.Acquire(limited, slot)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Delays between calls of a service that has not seen the newest policy. They double.
const (
	firstBehindDelay = 5 * time.Millisecond
	lastBehindDelay  = 320 * time.Millisecond
)

// reviewNewest requests a decision based on the newest policy of a namespace, or of the cluster
// scope, that the server has seen. If a service stays behind, its last decision applies to this
// request only.
func (a *Authorizer) reviewNewest(
	ctx context.Context,
	spec authorizationv1.SubjectAccessReviewSpec,
	scope string,
) (serviceResponse, error) {
	for pause := firstBehindDelay; ; pause *= 2 {
		start := a.config.Now()
		response, err := a.client.reviewWithRetry(ctx, spec)
		a.recordCall(err, a.config.Now().Sub(start))
		if err != nil || response.position == nil || a.cache.includesLastChange(*response.position, scope) {
			return response, err
		}
		a.config.Metrics.behind.WithLabelValues(a.config.Name).Inc()
		if pause > lastBehindDelay {
			return response, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return response, nil
		}
	}
}

// cacheResponse caches a response for the configured time.
func (a *Authorizer) cacheResponse(key cacheKey, scope string, lastChange uint64, response serviceResponse) {
	ttl := a.config.UnauthorizedTTL
	if response.status.Allowed && !response.status.Denied {
		ttl = a.config.AuthorizedTTL
	}
	if ttl > 0 {
		now := a.config.Now()
		a.cache.store(key, scope, cachedDecision{status: response.status, expires: now.Add(ttl)}, lastChange, response.position, now)
	}
}

// recordCall records the result and the duration of a call.
func (a *Authorizer) recordCall(err error, took time.Duration) {
	result := "success"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		result = "timeout"
	case errors.Is(err, context.Canceled):
		result = "canceled"
	case err != nil:
		result = "error"
	}
	a.config.Metrics.evaluations.WithLabelValues(a.config.Name, result).Inc()
	a.config.Metrics.duration.WithLabelValues(a.config.Name, result).Observe(took.Seconds())
}

// failureDecision returns the decision for a request that the service could not decide.
func (a *Authorizer) failureDecision(err error) (authorizer.Decision, string, error) {
	if a.config.FailureDecision == authorizer.NoOpinion {
		result := "error"
		if errors.Is(err, context.DeadlineExceeded) {
			result = "timeout"
		}
		a.config.Metrics.failOpen.WithLabelValues(a.config.Name, result).Inc()
	}
	return a.config.FailureDecision, "", fmt.Errorf("authorization webhook %s: %w", a.config.Name, err)
}
