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
	"binnacle/libs/clusterinfo"
	"binnacle/libs/reflector"
)

const (
	// pageSize is how many complete secrets are in memory at a time while listing.
	pageSize = 500
	// Backoff of failed lists and watches.
	minWatchRetry = time.Second
	maxWatchRetry = 30 * time.Second
)

// signingToken returns the token of a secret, or nil if the token is not for signing or the secret
// cannot be parsed.
func signingToken(o metav1.Object) *bootstraptoken.Token {
	secret, ok := o.(*corev1.Secret)
	if !ok || secret.DeletionTimestamp != nil {
		return nil
	}
	t, err := bootstraptoken.Parse(secret)
	if err != nil || !t.Signing {
		return nil
	}
	return &bootstraptoken.Token{ID: t.ID, Secret: t.Secret, Expires: t.Expires, Signing: true}
}

// asConfigMap returns an object as a config map, or nil.
func asConfigMap(o metav1.Object) *corev1.ConfigMap {
	m, _ := o.(*corev1.ConfigMap)
	return m
}

// newSecretReflector returns a reflector of the secrets of bootstrap tokens.
func (c *Controller) newSecretReflector(sink reflector.Sink) *reflector.Reflector {
	selector := fields.OneTermEqualSelector("type", string(bootstraptoken.SecretType)).String()
	return c.newReflector("bootstrap tokens", sink,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return c.Secrets.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return c.Secrets.Watch(ctx, o)
		})
}

// newMapReflector returns a reflector of the single config map.
func (c *Controller) newMapReflector(sink reflector.Sink) *reflector.Reflector {
	selector := fields.OneTermEqualSelector("metadata.name", clusterinfo.Name).String()
	return c.newReflector(mapKey, sink,
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return c.ConfigMaps.List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return c.ConfigMaps.Watch(ctx, o)
		})
}

// newReflector returns a reflector with the requests of a resource.
func (c *Controller) newReflector(resource string, sink reflector.Sink,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *reflector.Reflector {
	return reflector.New(reflector.Config{
		Resource: resource,
		List:     list,
		Watch:    follow,
		Sink:     sink,
		PageSize: pageSize,
		MinRetry: minWatchRetry,
		MaxRetry: maxWatchRetry,
		Log:      c.Log,
		Level:    slog.LevelWarn,
	})
}
