package traffic

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"binnacle/e2e/robustness/history"
)

// informer is a client-go informer or reflector whose requests are recorded.
type informer struct {
	*source
	run   func(context.Context)
	store cache.Store
}

// newInformer returns an informer that lists and watches.
func newInformer(traffic *Traffic, name string, selected history.Selection, nextTarget func() (int, encoding)) *informer {
	i := &informer{source: newSource(traffic, name, selected, nextTarget)}
	shared := cache.NewSharedIndexInformer(i.listWatch(), emptyObject(selected.Resource), 0, cache.Indexers{})
	i.store = shared.GetStore()
	i.run = func(ctx context.Context) { shared.RunWithContext(ctx) }
	return i
}

// newStreamingInformer returns an informer that gets the initial state from the watch. It is a
// reflector with a store, because an informer cannot enable streaming for itself only.
func newStreamingInformer(traffic *Traffic, name string, selected history.Selection, nextTarget func() (int, encoding)) *informer {
	i := &informer{source: newSource(traffic, name, selected, nextTarget), store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	r := cache.NewReflectorWithOptions(i.listWatch(), emptyObject(selected.Resource), i.store, cache.ReflectorOptions{Name: name})
	streaming := true
	r.UseWatchList = &streaming
	i.run = r.RunWithContext
	return i
}

// listWatch returns functions that list and watch through the source.
func (i *informer) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, responseTimeout)
			defer cancel()
			return i.listAndRecord(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			seconds := int64(maxWatchSeconds)
			o.TimeoutSeconds = &seconds
			return i.startWatch(ctx, o)
		},
	}
}

// storedVersions returns the contents of the store.
func (i *informer) storedVersions() ([]history.Version, error) {
	var all []history.Version
	for _, obj := range i.store.List() {
		v, err := versionOf(i.watch.Selection.Resource, obj.(runtime.Object))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// checkReached returns an error if the store is behind a revision: if it holds an older version of
// an object, or lacks an object that has not changed since.
func (i *informer) checkReached(truth *history.ChangeLog, revision int64) error {
	have, err := i.storedVersions()
	if err != nil {
		return err
	}
	then := truth.State(i.watch.Selection, revision)
	now := truth.State(i.watch.Selection, truth.Revision)
	for _, v := range have {
		if want, live := then[v.Key]; v.Revision < want.Revision || !live && v.Revision <= revision {
			return fmt.Errorf("%s holds %s of revision %d, which is outdated at %d", i.watch.Name, v.Key, v.Revision, revision)
		}
		delete(then, v.Key)
	}
	for key, v := range then {
		if now[key] == v {
			return fmt.Errorf("%s lacks %s of revision %d", i.watch.Name, key, v.Revision)
		}
	}
	return nil
}
