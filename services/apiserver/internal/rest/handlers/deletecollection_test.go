package handlers

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/libs/serving/h2"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/rest/responsewriters"
)

// TestWorkerPanicFailsRequest checks that a panic of a concurrent deletion becomes a
// panic of the request, which the server recovers.
func TestWorkerPanicFailsRequest(t *testing.T) {
	for workers := range 4 {
		api := &API{Config: Config{DeleteCollectionWorkers: workers}}
		list := &page{List: responsewriters.List{
			Items: make([]*objects.Entry, 20),
			Iterate: func(visit func(*objects.Entry) error) (err error) {
				for i := 0; i < 20 && err == nil; i++ {
					err = visit(nil)
				}
				return err
			},
		}}
		bug := errors.New("a bug") // the value of the panic
		func() {
			defer func() {
				recovered := recover()
				if failure, ok := recovered.(*h2.Failure); ok {
					recovered = failure.Value
				}
				if recovered != bug {
					t.Errorf("%d workers: got panic %v, want %v", workers, recovered, bug)
				}
			}()
			err := api.eachInParallel(list, func(*objects.Entry) error { panic(bug) })
			t.Errorf("%d workers: got %v, want a panic", workers, err)
		}()
	}
}

// TestWorkersEndWhenWalkPanics checks that no worker continues after the request.
func TestWorkersEndWhenWalkPanics(t *testing.T) {
	api := &API{Config: Config{DeleteCollectionWorkers: 3}}
	started := make(chan struct{})
	finish := make(chan struct{})
	list := &page{List: responsewriters.List{Items: make([]*objects.Entry, 2), Iterate: func(visit func(*objects.Entry) error) error {
		_ = visit(nil) // its error is returned at the end
		<-started
		time.AfterFunc(20*time.Millisecond, func() { close(finish) })
		panic("a bug")
	}}}
	var ended atomic.Bool
	defer func() {
		if recovered := recover(); recovered != "a bug" || !ended.Load() {
			t.Errorf("got panic %v, worker ended: %t, want panic %q after the worker ended", recovered, ended.Load(), "a bug")
		}
	}()
	err := api.eachInParallel(list, func(*objects.Entry) error {
		close(started)
		<-finish
		ended.Store(true)
		return nil
	})
	t.Error(err)
}
