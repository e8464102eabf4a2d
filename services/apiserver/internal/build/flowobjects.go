package build

import (
	"context"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// flowTasks take up flow schemas and priority levels as they change, and keep the
// status of schemas.
func (p *parts) flowTasks() []task.Task {
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default: // one is due already
		}
	}
	f := p.flowConfig
	tasks := []task.Task{
		{Name: "flow schemas", Run: f.dangling.Run},
		{Name: "flow control's objects", Run: func(ctx context.Context) error { return f.follow(ctx, changed) }},
	}
	for _, store := range []*watchcache.Store{f.schemas.Kind.Store, f.levels.Kind.Store} {
		tasks = append(tasks, task.Task{Name: "changes of flow control's objects", Run: func(ctx context.Context) error { return wakeAtChanges(ctx, store, wake) }})
	}
	return tasks
}

// wakeAtChanges wakes at every change of a resource until ctx ends.
func wakeAtChanges(ctx context.Context, store *watchcache.Store, wake func()) error {
	return tellChanges(ctx, store, func([]watchcache.Event) { wake() })
}

// tellChanges tells of every change of a resource, and of what there is, until ctx ends.
func tellChanges(ctx context.Context, store *watchcache.Store, tell func([]watchcache.Event)) error {
	return tellSelected(ctx, store, watchcache.Selection{}, tell)
}

// tellSelected is tellChanges for what a selection has.
func tellSelected(ctx context.Context, store *watchcache.Store, sel watchcache.Selection, tell func([]watchcache.Event)) error {
	return watchcache.Follow(ctx, func(ctx context.Context) error { return tellUntilLost(ctx, store, sel, tell) })
}

func tellUntilLost(ctx context.Context, store *watchcache.Store, sel watchcache.Selection, tell func([]watchcache.Event)) error {
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
			tell(buf)
		}
	}
}
