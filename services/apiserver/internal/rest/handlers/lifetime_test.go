package handlers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLifetime: a watch ends with whatever ends first, which is told once, also to who asks
// afterwards; who gives it up is told nothing.
func TestLifetime(t *testing.T) {
	const lasts = time.Minute
	for name, tc := range map[string]struct {
		lasts time.Duration
		end   func(request, server, kind context.CancelFunc, l *lifetime)
		want  error
		told  int
	}{
		"its time":    {lasts, func(_, _, _ context.CancelFunc, _ *lifetime) { time.Sleep(lasts) }, context.DeadlineExceeded, 1},
		"no time":     {-time.Second, func(_, _, _ context.CancelFunc, _ *lifetime) {}, context.DeadlineExceeded, 1},
		"its request": {lasts, func(request, _, _ context.CancelFunc, _ *lifetime) { request() }, context.Canceled, 1},
		"the server":  {lasts, func(_, server, _ context.CancelFunc, _ *lifetime) { server() }, context.Canceled, 1},
		"its kind":    {lasts, func(_, _, kind context.CancelFunc, _ *lifetime) { kind() }, context.Canceled, 1},
		"nobody":      {lasts, func(_, _, _ context.CancelFunc, _ *lifetime) {}, nil, 0},
		"who has it":  {lasts, func(_, _, _ context.CancelFunc, l *lifetime) { l.release() }, context.Canceled, 0},
		"all, one after others": {lasts, func(request, server, kind context.CancelFunc, l *lifetime) {
			request()
			server()
			kind()
			time.Sleep(lasts)
		}, context.Canceled, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			request, endRequest := context.WithCancel(t.Context())
			server, endServer := context.WithCancel(context.Background())
			defer endRequest()
			kind, endKind := context.WithCancel(context.Background())
			defer endServer()
			defer endKind()
			l := newLifetime(request, server, kind, tc.lasts)
			told := 0
			l.tell(func() { told++ })
			tc.end(endRequest, endServer, endKind, l)
			synctest.Wait()
			if err := l.Err(); !errors.Is(err, tc.want) || told != tc.told {
				t.Errorf("%s: ended with %v, told %d times; want %v, %d", name, err, told, tc.want, tc.told)
			}
			select {
			case <-l.Done():
				if tc.want == nil {
					t.Errorf("%s: it is done", name)
				}
			default:
				if tc.want != nil {
					t.Errorf("%s: it is not done", name)
				}
			}
			l.release() // or goroutines are left, which synctest tells
			again := 0
			l.tell(func() { again++ })
			if again != 1 {
				t.Errorf("%s: who asks afterwards is told %d times", name, again)
			}
		})
	}
}
