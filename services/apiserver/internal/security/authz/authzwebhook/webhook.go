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
	// Suspend, if set, is called when a request begins to wait for the service. back ends the wait.
	Suspend func(context.Context) (back func())
	Metrics *Metrics
	Calls   *webhookclient.Metrics // may be nil
	Dial    webhookclient.Dial     // nil connects directly
	Logger  *slog.Logger
	Now     func() time.Time
}

// Authorizer calls a service. It implements authorizer.Authorizer and authorizer.RuleResolver.
type Authorizer struct {
	cfg      Config
	client   *client
	cache    *cache
	flights  singleflight.Group
	hits     prometheus.Counter
	waiting  *limit.Queue[string] // limits the requests that wait for the service
	callCtx  context.Context
	endCalls context.CancelFunc
}

// slotTimeout is how long requests beyond MaxWaiting wait for a slot.
const slotTimeout = time.Second

// New reads the kubeconfig. The service need not be reachable yet.
func New(c Config) (*Authorizer, error) {
	z := &Authorizer{cfg: c, waiting: limit.New[string](limit.Options{Size: c.MaxWaiting, Share: true})}
	var err error
	if z.client, err = newClient(c.KubeconfigFile, c.Version, c.Dial); err != nil {
		return nil, err
	}
	z.client.WarnPlain(c.Logger, "authorization webhook "+c.Name)
	z.client.Measure(c.Calls)
	if z.cache, err = newCache(); err != nil {
		return nil, err
	}
	if z.cfg.Now == nil {
		z.cfg.Now = time.Now
	}
	z.hits = c.Metrics.cacheRequests.WithLabelValues(c.Name, "hit")
	z.callCtx, z.endCalls = context.WithCancel(context.Background())
	return z, nil
}

// Close ends running calls. Later ones fail.
func (z *Authorizer) Close() {
	z.endCalls()
	z.Retire()
}

// Retire lets running calls finish and releases unused connections. Last requests with a replaced
// configuration may still arrive.
func (z *Authorizer) Retire() { z.client.Close() }

// PolicyChanged invalidates the cached decisions that a change of the policy affects.
// Changes must arrive in order.
func (z *Authorizer) PolicyChanged(c rbac.Change) { z.cache.policyChanged(c, z.cfg.Now()) }

var (
	errBoth     = errors.New("webhook subject access review returned both allow and deny response")
	errUnlisted = errors.New("webhook authorizer does not support user rule resolution")
)

// RulesFor implements authorizer.RuleResolver. A service does not list rules.
func (*Authorizer) RulesFor(context.Context, *authorizer.User, string) (authorizer.Rules, error) {
	return authorizer.Rules{Incomplete: true}, errUnlisted
}

// Authorize implements authorizer.Authorizer.
func (z *Authorizer) Authorize(ctx context.Context, a *authorizer.Attributes) (authorizer.Decision, string, error) {
	if z.cfg.Conditions != nil {
		matches, err := z.matchesConditions(ctx, a)
		if err != nil {
			return z.cfg.FailureDecision, "", err
		}
		if !matches {
			return authorizer.NoOpinion, "", nil
		}
	}
	q := z.cache.cacheKeyOf(a)
	status, ok, asked := z.cache.get(q, scopeOf(a), z.cfg.Now())
	if ok {
		z.hits.Inc()
		return decisionOf(&status)
	}
	if z.cfg.Suspend != nil {
		defer z.cfg.Suspend(ctx)()
	}
	got, err := z.callShared(ctx, q, asked, a)
	if err != nil {
		return z.failureDecision(err)
	}
	return decisionOf(&got.status)
}

// matchesConditions reports whether the match conditions select the request.
func (z *Authorizer) matchesConditions(ctx context.Context, a *authorizer.Attributes) (bool, error) {
	spec := a.Spec()
	return z.cfg.Conditions.match(ctx, &spec, z.cfg.Metrics, z.cfg.Name)
}

// decisionOf returns the decision that a status states. A denial takes precedence.
func decisionOf(status *authorizationv1.SubjectAccessReviewStatus) (authorizer.Decision, string, error) {
	switch {
	case status.Denied && status.Allowed:
		return authorizer.Deny, status.Reason, errBoth
	case status.Denied:
		return authorizer.Deny, status.Reason, nil
	case status.Allowed:
		return authorizer.Allow, status.Reason, nil
	}
	return authorizer.NoOpinion, status.Reason, nil
}

// scopeOf returns the namespace whose roles and bindings a decision depends on, besides
// those of the cluster; empty if there is none.
func scopeOf(a *authorizer.Attributes) string {
	if !a.Resource {
		return ""
	}
	return a.Namespace
}

// callShared calls the service once for all concurrent equal requests under the same policy.
func (z *Authorizer) callShared(ctx context.Context, q cacheKey, asked uint64, a *authorizer.Attributes) (answer, error) {
	cacheable := !oversized(a)
	if cacheable {
		z.cfg.Metrics.cacheRequests.WithLabelValues(z.cfg.Name, "miss").Inc()
	} else {
		z.cfg.Metrics.cacheRequests.WithLabelValues(z.cfg.Name, "oversized").Inc()
	}
	slot := limit.Claim[string]{Key: request.Principal(ctx)} // an access review may concern any user
	if err := z.acquire(ctx, slot); err != nil {
		return answer{}, err
	}
	defer z.waiting.Release(slot)
	scope := scopeOf(a)
	spec := a.Spec() // shares no memory that the caller changes
	flight := z.flights.DoChan(string(binary.AppendUvarint(q[:], asked)), func() (any, error) {
		// An earlier call may have ended between the cache lookup and this point.
		if status, ok, now := z.cache.get(q, scope, z.cfg.Now()); ok && now == asked {
			return answer{status: status}, nil
		}
		// Other requests may wait for the call after the first one leaves.
		ctx, cancel := context.WithTimeout(z.callCtx, z.cfg.Timeout)
		defer cancel()
		var got answer
		// A panic here would end the process.
		err := task.Protect(func() (err error) {
			got, err = z.review(ctx, spec, scope)
			return err
		})
		if err != nil {
			return nil, err
		}
		if cacheable && !got.noStore {
			z.cacheAnswer(q, scope, asked, got)
		}
		return got, nil
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return answer{}, r.Err
		}
		return r.Val.(answer), nil
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// acquire waits for a slot to call the service.
func (z *Authorizer) acquire(ctx context.Context, slot limit.Claim[string]) error {
	limited, cancel := context.WithTimeout(ctx, min(slotTimeout, z.cfg.Timeout))
	defer cancel()
	err := z.waiting.Acquire(limited, slot)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Delays between calls of a service that has not seen the newest policy. They double.
const (
	firstBehindPause = 5 * time.Millisecond
	lastBehindPause  = 320 * time.Millisecond
)

// review requests a decision based on the newest policy of a namespace, or of the cluster scope,
// that the server has seen. If a service stays behind, its last decision applies to this request
// only.
func (z *Authorizer) review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec, scope string) (answer, error) {
	for pause := firstBehindPause; ; pause *= 2 {
		begin := z.cfg.Now()
		got, err := z.client.review(ctx, spec)
		z.recordCall(err, z.cfg.Now().Sub(begin))
		if err != nil || got.position == nil || z.cache.includesLastChange(*got.position, scope) {
			return got, err
		}
		z.cfg.Metrics.behind.WithLabelValues(z.cfg.Name).Inc()
		if pause > lastBehindPause {
			return got, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return got, nil
		}
	}
}

// cacheAnswer caches an answer for the configured time.
func (z *Authorizer) cacheAnswer(q cacheKey, scope string, asked uint64, got answer) {
	ttl := z.cfg.UnauthorizedTTL
	if got.status.Allowed && !got.status.Denied {
		ttl = z.cfg.AuthorizedTTL
	}
	if ttl > 0 {
		now := z.cfg.Now()
		z.cache.put(q, scope, decision{status: got.status, expires: now.Add(ttl)}, asked, got.position, now)
	}
}

// recordCall records the result and the duration of a call.
func (z *Authorizer) recordCall(err error, took time.Duration) {
	result := "success"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		result = "timeout"
	case errors.Is(err, context.Canceled):
		result = "canceled"
	case err != nil:
		result = "error"
	}
	z.cfg.Metrics.evaluations.WithLabelValues(z.cfg.Name, result).Inc()
	z.cfg.Metrics.duration.WithLabelValues(z.cfg.Name, result).Observe(took.Seconds())
}

// failureDecision returns the decision without the service.
func (z *Authorizer) failureDecision(err error) (authorizer.Decision, string, error) {
	if z.cfg.FailureDecision == authorizer.NoOpinion {
		result := "error"
		if errors.Is(err, context.DeadlineExceeded) {
			result = "timeout"
		}
		z.cfg.Metrics.failOpen.WithLabelValues(z.cfg.Name, result).Inc()
	}
	return z.cfg.FailureDecision, "", fmt.Errorf("authorization webhook %s: %w", z.cfg.Name, err)
}
