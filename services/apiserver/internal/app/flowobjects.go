package app

import (
	"context"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/bootstrap"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/watchcache"
)

// flowTasks keep the status of flow schemas, and have requests be judged by them.
func (p *parts) flowTasks() []task.Task {
	changed, counts := make(chan struct{}, 1), make(chan struct{}, 1)
	wake := func() {
		for _, c := range []chan struct{}{changed, counts} {
			select {
			case c <- struct{}{}:
			default: // one is due already
			}
		}
	}
	d := &bootstrap.Dangling{API: p.loopback, Logger: p.log, Now: time.Now, Changed: changed}
	tasks := []task.Task{{Name: "flow schemas", Run: d.Run}}
	if f := p.flowConfig; f != nil {
		tasks = append(tasks, task.Task{Name: "flow control's objects", Run: func(ctx context.Context) error { return f.follow(ctx, counts) }})
	}
	for _, resource := range []string{"flowschemas", "prioritylevelconfigurations"} {
		kind := p.catalog.Resource(flowcontrolv1.SchemeGroupVersion.WithResource(resource))
		store := p.cached(served.KeyPrefix(p.root(), kind))
		tasks = append(tasks, task.Task{Name: resource, Run: func(ctx context.Context) error { return wakeAtChanges(ctx, store, wake) }})
	}
	return tasks
}

// wakeAtChanges wakes at every change of a resource until ctx ends.
func wakeAtChanges(ctx context.Context, store *watchcache.Store, wake func()) error {
	return tellChanges(ctx, store, func([]watchcache.Event) { wake() })
}

// tellChanges tells of every change of a resource, and of what there is, until ctx ends.
func tellChanges(ctx context.Context, store *watchcache.Store, tell func([]watchcache.Event)) error {
	return watchcache.Follow(ctx, func(ctx context.Context) error { return tellUntilLost(ctx, store, tell) })
}

func tellUntilLost(ctx context.Context, store *watchcache.Store, tell func([]watchcache.Event)) error {
	w, err := store.Watch(watchcache.WatchOptions{Initial: watchcache.InitialState})
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
