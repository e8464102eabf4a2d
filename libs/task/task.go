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
		err := protect(g.ctx, run)
		if err == nil || isEnd(g.ctx, err) {
			return
		}
		g.record(fmt.Errorf("%s: %w", name, err))
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

	for _, t := range background {
		backgroundGroup.Go(t.Name, func(ctx context.Context) error {
			err := protect(ctx, t.Run)
			if err == nil || isEnd(ctx, err) {
				return nil
			}
			// The error is recorded without ending the other background tasks, which the foreground
			// needs until it has drained.
			stopForeground()
			backgroundGroup.record(fmt.Errorf("%s: %w", t.Name, err))
			return nil
		})
	}
	err := protect(foregroundCtx, foreground.Run)
	if err != nil && !isEnd(foregroundCtx, err) {
		backgroundGroup.record(fmt.Errorf("%s: %w", foreground.Name, err))
	}
	backgroundGroup.Stop()
	return backgroundGroup.Wait()
}

// record keeps the first error.
func (g *Group) record(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
}

// isEnd reports whether err only repeats that ctx has ended.
func isEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ctx.Err()))
}

// protect runs a function and converts a panic to a *PanicError.
func protect(ctx context.Context, run func(context.Context) error) error {
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
