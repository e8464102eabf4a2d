package informer

import (
	"context"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Follow calls handle with the current objects of a selection and then with every change until ctx
// ends. It calls handle again with all current objects if changes were missed.
func Follow(ctx context.Context, store *watchcache.Store, sel objects.Selection, handle func([]watchcache.Event)) error {
	return New(Config{
		Store:     store,
		Selection: sel,
		Replace: func(_ context.Context, entries []*objects.Entry, _ int64) {
			added := make([]watchcache.Event, len(entries))
			for i, e := range entries {
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

// FollowNames calls handle with the name of every object of a resource that changes, until ctx
// ends.
func FollowNames(ctx context.Context, store *watchcache.Store, handle func(namespace, name string)) error {
	return Follow(ctx, store, objects.Selection{}, func(changes []watchcache.Event) {
		for _, e := range changes {
			if e.Entry != nil {
				handle(e.Entry.Namespace(), e.Entry.Name())
			}
		}
	})
}
