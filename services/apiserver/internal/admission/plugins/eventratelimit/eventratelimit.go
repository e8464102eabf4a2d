// Package eventratelimit limits the rate of event writes for the whole server, per namespace, per
// user, or per source and object. It counts events of the core group in memory, separately in each
// replica.
package eventratelimit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/status"
)

// Name is the name of the plugin in flags and configuration.
const Name = "EventRateLimit"

// defaultCacheSize is the number of buckets of a limit that does not set CacheSize.
const defaultCacheSize = 4096

// Plugin implements admission.Validator.
type Plugin struct {
	limits []*limit
	now    func() time.Time
}

// digest is the SHA-256 of a bucket's key. A key contains strings of clients, which can be as large
// as a megabyte.
type digest [sha256.Size]byte

// limit is a configured Limit and its token buckets.
type limit struct {
	Limit
	// key returns the key of the bucket to which an event is charged.
	key func(*admission.Request) string

	mu      sync.Mutex // leaf lock
	buckets *lru.Cache[digest, *rate.Limiter]
}

// New returns the plugin. now returns the current time.
func New(configuration *Configuration, now func() time.Time) (*Plugin, error) {
	keys := map[string]func(*admission.Request) string{
		Server:          serverKey,
		Namespace:       namespaceKey,
		User:            userKey,
		SourceAndObject: sourceAndObjectKey,
	}
	plugin := &Plugin{now: now}
	for _, configured := range configuration.Limits {
		size := int(configured.CacheSize)
		if size == 0 || configured.Type == Server {
			size = defaultCacheSize
		}
		buckets, err := lru.New[digest, *rate.Limiter](size)
		if err != nil {
			return nil, err
		}
		plugin.limits = append(plugin.limits, &limit{Limit: configured, key: keys[configured.Type], buckets: buckets})
	}
	return plugin, nil
}

// Validate implements admission.Validator. Every limit is charged, even if an earlier one has
// already rejected the event.
func (p *Plugin) Validate(_ context.Context, req *admission.Request) error {
	if req.Kind.Group != "" || req.Kind.Kind != "Event" || req.DryRun ||
		req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	var errs []error
	for _, l := range p.limits {
		if key := l.key(req); !l.allow(key, p.now()) {
			errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", l.Type, key))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewTooManyRequestsError(status.Aggregated(errs).Error())
}

// allow takes a token from the bucket of a key. It returns false if the bucket is empty.
func (l *limit) allow(key string, now time.Time) bool {
	id := digest(sha256.Sum256([]byte(key)))
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.buckets.Get(id)
	if !ok {
		limiter = rate.NewLimiter(rate.Limit(l.QPS), int(l.Burst))
		l.buckets.Add(id, limiter)
	}
	return limiter.AllowN(now, 1)
}

// serverKey, namespaceKey, userKey and sourceAndObjectKey return the keys of buckets for the types of
// limits.
func serverKey(*admission.Request) string { return "" }

func namespaceKey(r *admission.Request) string { return r.Namespace }

func userKey(req *admission.Request) string {
	if req.User == nil {
		return ""
	}
	return req.User.Name
}

func sourceAndObjectKey(r *admission.Request) string {
	event, ok := r.Object.(*corev1.Event)
	if !ok {
		return ""
	}
	about := &event.InvolvedObject
	return event.Source.Component + event.Source.Host + about.Kind + about.Namespace + about.Name + string(about.UID) + about.APIVersion
}
