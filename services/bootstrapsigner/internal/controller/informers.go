package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/clusterinfo"
)

// entry is the informer's copy of a secret.
type entry struct {
	name, uid, resourceVersion string
	// token is nil for secrets that are not for signing.
	token *bootstraptoken.Token
}

// GetObjectMeta provides the key to the informer.
func (e *entry) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{
		Namespace: bootstraptoken.Namespace, Name: e.name,
		UID: types.UID(e.uid), ResourceVersion: e.resourceVersion,
	}
}

// compact is the transform function of secrets. Already transformed objects, and markers of missed
// deletions, pass unchanged.
func compact(obj any) (any, error) {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	e := &entry{name: s.Name, uid: string(s.UID), resourceVersion: s.ResourceVersion}
	// An unreadable secret signs nothing. The user of the token gets the error.
	if t, err := bootstraptoken.Parse(s); err == nil && t.Signing && s.DeletionTimestamp == nil {
		e.token = &bootstraptoken.Token{ID: t.ID, Secret: t.Secret, Expires: t.Expires, Signing: true}
	}
	return e, nil
}

// newSecretInformer returns an informer of entries.
func newSecretInformer(client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	secrets := client.CoreV1().Secrets(bootstraptoken.Namespace)
	selector := fields.OneTermEqualSelector("type", string(bootstraptoken.SecretType)).String()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return secrets.List(ctx, o)
		},
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

// newMapInformer returns an informer of the single config map.
func newMapInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	maps := client.CoreV1().ConfigMaps(clusterinfo.Namespace)
	selector := fields.OneTermEqualSelector("metadata.name", clusterinfo.Name).String()
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return maps.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return maps.Watch(ctx, o)
		},
	}, &corev1.ConfigMap{}, resync, cache.Indexers{})
}
