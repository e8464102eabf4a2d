package task_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"binnacle/libs/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

func untilDone(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// TestRunReturnsFirstErrorAfterAllTasksEnd returns the first error of the tasks after all have
// ended.
func TestRunReturnsFirstErrorAfterAllTasksEnd(t *testing.T) {
	tests := []struct {
		name  string
		tasks []task.Task
		want  string // substring of the error; empty: no error
	}{
		{name: "no tasks", tasks: nil, want: ""},
		{name: "all finish", tasks: []task.Task{
			{Name: "a", Run: func(context.Context) error { return nil }},
			{Name: "b", Run: func(context.Context) error { return nil }},
		}, want: ""},
		{name: "one fails, the other is canceled", tasks: []task.Task{
			{Name: "cache", Run: func(context.Context) error { return errBroken }},
			{Name: "server", Run: untilDone},
		}, want: "cache: broken"},
		{name: "one panics, the other is canceled", tasks: []task.Task{
			{Name: "cache", Run: func(context.Context) error { panic("out of cheese") }},
			{Name: "server", Run: untilDone},
		}, want: "cache: panic: out of cheese"},
		{name: "a context error while the group lives is a failure", tasks: []task.Task{
			{Name: "poll", Run: func(context.Context) error { return context.Canceled }},
			{Name: "server", Run: untilDone},
		}, want: "poll: context canceled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := task.Run(t.Context(), tt.tasks...)
			if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("Run() = %v, want %q", err, tt.want)
			}
		})
	}
}

// TestRunEndsCleanlyWithItsContext checks that the context errors of tasks are no failure after ctx
// has ended.
func TestRunEndsCleanlyWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	done := make(chan error)
	go func() {
		done <- task.Run(ctx, task.Task{Name: "a", Run: func(ctx context.Context) error {
			close(started)
			return untilDone(ctx)
		}})
	}()
	<-started
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("Run() = %v after its context ended, want nil", err)
	}
}

// TestPanicKeepsItsStack checks that the error for a panic has the stack of the panic.
func TestPanicKeepsItsStack(t *testing.T) {
	err := task.Run(t.Context(), task.Task{Name: "a", Run: func(context.Context) error { panic("x") }})
	var panicErr *task.PanicError
	if !errors.As(err, &panicErr) || !strings.Contains(string(panicErr.Stack), "task_test.go") {
		t.Fatalf("Run() = %v, want a PanicError with this file in its stack", err)
	}
}

// TestAroundKeepsBackgroundUntilForegroundEnds checks that background tasks run until the
// foreground has returned.
func TestAroundKeepsBackgroundUntilForegroundEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	backgroundEnded := make(chan struct{})
	err := task.Around(ctx, task.Task{Name: "server", Run: func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		select {
		case <-backgroundEnded:
			return errors.New("the background ended before the foreground")
		default:
			return nil
		}
	}}, task.Task{Name: "cache", Run: func(ctx context.Context) error {
		<-ctx.Done()
		close(backgroundEnded)
		return ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	<-backgroundEnded
}

// TestAroundStopsBothSidesAfterFailure checks that a failure or panic of either side ends the other
// side and is returned.
func TestAroundStopsBothSidesAfterFailure(t *testing.T) {
	tests := []struct {
		name       string
		front      func(context.Context) error
		back       func(context.Context) error
		wantPrefix string
	}{
		{
			name:       "background fails",
			front:      untilDone,
			back:       func(context.Context) error { return errBroken },
			wantPrefix: "cache: broken",
		},
		{
			name:       "background panics",
			front:      untilDone,
			back:       func(context.Context) error { panic("x") },
			wantPrefix: "cache: panic",
		},
		{
			name:       "foreground fails",
			front:      func(context.Context) error { return errBroken },
			back:       untilDone,
			wantPrefix: "server: broken",
		},
		{
			name:       "foreground panics",
			front:      func(context.Context) error { panic("x") },
			back:       untilDone,
			wantPrefix: "server: panic",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := task.Around(t.Context(), task.Task{Name: "server", Run: tt.front}, task.Task{Name: "cache", Run: tt.back})
			if err == nil || !strings.HasPrefix(err.Error(), tt.wantPrefix) {
				t.Fatalf("Around() = %v, want an error that begins with %q", err, tt.wantPrefix)
			}
		})
	}
}
