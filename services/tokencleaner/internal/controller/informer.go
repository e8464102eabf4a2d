package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"binnacle/libs/bootstraptoken"
)

// pageSize is how many complete secrets are in memory at a time while listing.
const pageSize = 500

// entry is the informer's copy of a secret.
type entry struct {
	name, uid, resourceVersion string
	// expires is in nanoseconds since 1970; zero without an expiration.
	expires    int64
	unreadable bool
}

// GetObjectMeta provides the key to the informer.
func (e *entry) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{
		Namespace: bootstraptoken.Namespace, Name: e.name,
		UID: types.UID(e.uid), ResourceVersion: e.resourceVersion,
	}
}

// due returns when to delete the secret, and false if never.
func (e *entry) due(tolerance time.Duration) (time.Time, bool) {
	if e.unreadable || e.expires == 0 {
		return time.Time{}, false
	}
	return time.Unix(0, e.expires).Add(tolerance), true
}

// latest is the last time that an entry can hold. Later expirations are treated as never.
var latest = time.Unix(0, 1<<63-1)

// compact is the informer's transform function. Already transformed objects, and markers of missed
// deletions, pass unchanged.
func compact(obj any) (any, error) {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	e := &entry{name: s.Name, uid: string(s.UID), resourceVersion: s.ResourceVersion}
	text := string(s.Data[bootstraptoken.KeyExpiration])
	if s.Type != bootstraptoken.SecretType || text == "" {
		return e, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		e.unreadable = true
	case at.After(latest):
	case at.Before(time.Unix(0, 1)):
		e.expires = 1
	default:
		e.expires = at.UnixNano()
	}
	return e, nil
}

// newInformer returns an informer of entries.
func newInformer(client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	secrets := client.CoreV1().Secrets(bootstraptoken.Namespace)
	selector := fields.OneTermEqualSelector("type", string(bootstraptoken.SecretType)).String()
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		// List in pages and strip each at once. The revision of the first page applies to all.
		o.FieldSelector, o.Limit, o.ResourceVersion, o.ResourceVersionMatch = selector, pageSize, "", ""
		all, err := secrets.List(ctx, o)
		if err != nil {
			return nil, err
		}
		strip(all.Items)
		for next := all.Continue; next != ""; {
			o.Continue = next
			page, err := secrets.List(ctx, o)
			if err != nil {
				return nil, err
			}
			strip(page.Items)
			all.Items, next = append(all.Items, page.Items...), page.Continue
		}
		all.Continue, all.RemainingItemCount = "", nil
		return all, nil
	}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: list,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return secrets.Watch(ctx, o)
		},
	}, &corev1.Secret{}, resync, cache.Indexers{})
	if err := informer.SetTransform(compact); err != nil {
		return nil, fmt.Errorf("informer of bootstrap tokens: %w", err)
	}
	return informer, nil
}

// strip removes from secrets all fields that compact does not read.
func strip(items []corev1.Secret) {
	for i := range items {
		s := &items[i]
		kept := corev1.Secret{Type: s.Type}
		kept.Name, kept.Namespace, kept.UID, kept.ResourceVersion = s.Name, s.Namespace, s.UID, s.ResourceVersion
		if text, ok := s.Data[bootstraptoken.KeyExpiration]; ok {
			kept.Data = map[string][]byte{bootstraptoken.KeyExpiration: text}
		}
		*s = kept
	}
}
