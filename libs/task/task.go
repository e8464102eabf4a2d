package task

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Task is a named function that works until ctx ends.
type Task struct {
	Name string
	Run  func(ctx context.Context) error
}

// PanicError is the error for a panic in a task.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Group runs tasks until all have ended. Use NewGroup; the zero value is not usable.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex // leaf lock
	err error
}

// NewGroup returns an empty group. The tasks' context ends with ctx, with the
// first failure, and when Wait returns.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancel(ctx)
	return &Group{ctx: ctx, cancel: cancel}
}

// Go starts a task. It may be called from a task of the same group, but not
// after Wait has returned.
func (g *Group) Go(name string, run func(ctx context.Context) error) {
	g.wg.Go(func() {
		err := runProtected(g.ctx, run)
		if err == nil || isContextEnd(g.ctx, err) {
			return
		}
		g.recordFirst(fmt.Errorf("%s: %w", name, err))
		g.cancel()
	})
}

// Stop ends the context of the tasks without an error.
func (g *Group) Stop() { g.cancel() }

// Wait blocks until every task has ended and returns the first failure.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Run runs tasks in one group and waits for them.
func Run(ctx context.Context, tasks ...Task) error {
	g := NewGroup(ctx)
	for _, t := range tasks {
		g.Go(t.Name, t.Run)
	}
	return g.Wait()
}

// Around runs foreground together with background tasks. The end of ctx, or a failing background
// task, ends only the foreground's context. Background tasks end after the foreground has returned.
// Around returns the first failure.
func Around(ctx context.Context, foreground Task, background ...Task) error {
	backgroundGroup := NewGroup(context.WithoutCancel(ctx))
	foregroundCtx, stopForeground := context.WithCancel(ctx)
	defer stopForeground()

	for _, task := range background {
		backgroundGroup.Go(task.Name, func(ctx context.Context) error {
			err := runProtected(ctx, task.Run)
			if err == nil || isContextEnd(ctx, err) {
				return nil
			}
			// The error is recorded without ending the other background tasks, which the foreground
			// needs until it has drained.
			stopForeground()
			backgroundGroup.recordFirst(fmt.Errorf("%s: %w", task.Name, err))
			return nil
		})
	}
	err := runProtected(foregroundCtx, foreground.Run)
	if err != nil && !isContextEnd(foregroundCtx, err) {
		backgroundGroup.recordFirst(fmt.Errorf("%s: %w", foreground.Name, err))
	}
	backgroundGroup.Stop()
	return backgroundGroup.Wait()
}

// recordFirst keeps the first error.
func (g *Group) recordFirst(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
}

// isContextEnd reports whether err is the error of ctx, which has ended.
func isContextEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err()))
}

// runProtected runs a function and converts a panic to a *PanicError.
func runProtected(ctx context.Context, run func(context.Context) error) error {
	return Protect(func() error { return run(ctx) })
}

// Protect runs a function and converts a panic to a *PanicError. It is for goroutines outside of a
// group, where a panic would end the process.
func Protect(run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return run()
}
