package build

import (
	"context"

	"binnacle/libs/task"
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
	return watchcache.Follow(ctx, func(ctx context.Context) error { return followUntilError(ctx, store, sel, handle) })
}

func followUntilError(ctx context.Context, store *watchcache.Store, sel watchcache.Selection, handle func([]watchcache.Event)) error {
	w, err := store.Watch(watchcache.WatchOptions{Selection: sel, Initial: watchcache.InitialState})
	if err != nil {
		return err
	}
	defer w.Close()
	var buf []watchcache.Event
	for {
		if buf, err = w.Next(ctx, buf); err != nil {
			return err
		}
		if len(buf) > 0 {
			handle(buf)
		}
	}
}
