package build

import (
	"context"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// flowTasks returns tasks that apply changed flow schemas and priority levels, and maintain the
// statuses of schemas.
func (p *parts) flowTasks() []task.Task {
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default: // an update is pending
		}
	}
	f := p.flowConfig
	tasks := []task.Task{
		{Name: "flow schemas", Run: f.dangling.Run},
		{Name: "flow control configuration", Run: func(ctx context.Context) error { return f.follow(ctx, changed) }},
	}
	for _, store := range []*watchcache.Store{f.schemas.Kind.Store, f.levels.Kind.Store} {
		tasks = append(tasks, task.Task{Name: "changes of flow control objects", Run: func(ctx context.Context) error { return wakeOnChanges(ctx, store, wake) }})
	}
	return tasks
}

// wakeOnChanges calls wake after every change of a resource until ctx ends.
func wakeOnChanges(ctx context.Context, store *watchcache.Store, wake func()) error {
	return followChanges(ctx, store, func([]watchcache.Event) { wake() })
}

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
