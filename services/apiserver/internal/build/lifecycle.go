package build

import (
	"context"

	"binnacle/libs/task"
)

// lifecycle is the one list of what the server runs and releases. A constructor adds the tasks of a
// part, and how to release it, when it creates the part. The order of construction is therefore the
// order of the start, and a shutdown goes through the list backwards: first it ends the tasks that
// serve, then the background tasks, and then it releases the parts from the last to the first.
type lifecycle struct {
	// background tasks run from the start until the last request has ended.
	background []task.Task
	// serving tasks run while the server accepts requests.
	serving []task.Task
	release []func()
}

// inBackground adds a background task.
func (l *lifecycle) inBackground(name string, run func(context.Context) error) {
	l.background = append(l.background, task.Task{Name: name, Run: run})
}

// whileServing adds a task that runs while the server accepts requests.
func (l *lifecycle) whileServing(name string, run func(context.Context) error) {
	l.serving = append(l.serving, task.Task{Name: name, Run: run})
}

// onClose adds a function that releases a part.
func (l *lifecycle) onClose(release func()) { l.release = append(l.release, release) }

// run runs all tasks until ctx ends or one of them fails.
func (l *lifecycle) run(ctx context.Context) error {
	return task.Around(ctx, task.Task{Name: "server", Run: func(ctx context.Context) error {
		return task.Run(ctx, l.serving...)
	}}, l.background...)
}

// close releases all parts.
func (l *lifecycle) close() {
	for i := len(l.release) - 1; i >= 0; i-- {
		l.release[i]()
	}
}
