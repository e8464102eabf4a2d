package build

import (
	"context"

	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// followChanges calls handle with the current objects and then with every change of a resource
// until ctx ends.
func followChanges(ctx context.Context, store *watchcache.Store, handle func([]watchcache.Event)) error {
	return followSelected(ctx, store, watchcache.Selection{}, handle)
}

// followSelected is followChanges for the objects of a selection.
func followSelected(ctx context.Context, store *watchcache.Store, sel watchcache.Selection, handle func([]watchcache.Event)) error {
	return informer.New(informer.Config{
		Store: store, Selection: sel,
		Replace: func(_ context.Context, objects []*watchcache.Entry, _ int64) {
			added := make([]watchcache.Event, len(objects))
			for i, e := range objects {
				added[i] = watchcache.Event{Type: watchcache.Added, Revision: e.Revision, Entry: e}
			}
			handle(added)
		},
		Apply: func(_ context.Context, changes []watchcache.Event, _ int64) {
			if len(changes) > 0 {
				handle(changes)
			}
		},
	}).Run(ctx)
}

// followNames calls handle with the name of every object of a resource that changes, until ctx
// ends.
func followNames(ctx context.Context, store *watchcache.Store, handle func(namespace, name string)) error {
	return followChanges(ctx, store, func(changes []watchcache.Event) {
		for _, e := range changes {
			if e.Entry != nil {
				handle(e.Entry.Namespace(), e.Entry.Name())
			}
		}
	})
}
