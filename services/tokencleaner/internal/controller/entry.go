package controller

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/reflector"
)

const (
	// pageSize is how many complete secrets are in memory at a time while listing.
	pageSize = 500
	// Backoff of failed lists and watches.
	minWatchRetry = time.Second
	maxWatchRetry = 30 * time.Second
)

// entry is what the controller keeps of a secret.
type entry struct {
	name, uid, resourceVersion string
	// expires is in nanoseconds since 1970; zero without an expiration.
	expires int64
	// malformed is set if the expiration is not a time of RFC 3339.
	malformed bool
}

// deletionTime returns when to delete the secret, and false if never.
func (e *entry) deletionTime(tolerance time.Duration) (time.Time, bool) {
	if e.malformed || e.expires == 0 {
		return time.Time{}, false
	}
	return time.Unix(0, e.expires).Add(tolerance), true
}

// latestTime is the last time that an entry can hold. Later expirations are treated as never.
var latestTime = time.Unix(0, 1<<63-1)

// newEntry returns the entry of a secret.
func newEntry(o metav1.Object) entry {
	queued := entry{name: o.GetName(), uid: string(o.GetUID()), resourceVersion: o.GetResourceVersion()}
	secret, ok := o.(*corev1.Secret)
	if !ok || secret.Type != bootstraptoken.SecretType {
		return queued
	}
	text := string(secret.Data[bootstraptoken.KeyExpiration])
	if text == "" {
		return queued
	}
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		queued.malformed = true
	case at.After(latestTime): // never
	case at.Before(time.Unix(0, 1)):
		queued.expires = 1
	default:
		queued.expires = at.UnixNano()
	}
	return queued
}

// newReflector returns a reflector that keeps the entries of all bootstrap tokens in store.
func (c *Controller) newReflector(store *reflector.Store[entry]) *reflector.Reflector {
	selector := fields.OneTermEqualSelector("type", string(bootstraptoken.SecretType)).String()
	return reflector.New(reflector.Config{
		Resource: "bootstrap tokens",
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return c.Secrets.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return c.Secrets.Watch(ctx, o)
		},
		Sink:     store,
		PageSize: pageSize,
		MinRetry: minWatchRetry,
		MaxRetry: maxWatchRetry,
		Log:      c.Log,
		Level:    slog.LevelWarn,
	})
}
