package handlers

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/libs/serving/h2"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/rest/responsewriters"
)

// TestPanicsOfWorkers: what panics while several objects are deleted at a time is a panic of the
// request, which somebody recovers from.
func TestPanicsOfWorkers(t *testing.T) {
	for workers := range 4 {
		a := &API{Config: Config{DeleteCollectionWorkers: workers}}
		p := &page{List: responsewriters.List{Items: make([]*watchcache.Entry, 20), Walk: func(visit func(*watchcache.Entry) error) (err error) {
			for i := 0; i < 20 && err == nil; i++ {
				err = visit(nil)
			}
			return err
		}}}
		bug := errors.New("a bug")
		func() {
			defer func() {
				v := recover()
				if f, ok := v.(*h2.Failure); ok {
					v = f.Value
				}
				if v != bug {
					t.Errorf("%d workers: %v", workers, v)
				}
			}()
			err := a.eachBeside(p, func(*watchcache.Entry) error { panic(bug) })
			t.Errorf("%d workers: %v", workers, err)
		}()
	}
}

// TestWorkersEndWithAWalkThatPanics: nobody goes on beyond the request.
func TestWorkersEndWithAWalkThatPanics(t *testing.T) {
	a := &API{Config: Config{DeleteCollectionWorkers: 3}}
	works, walks := make(chan struct{}), make(chan struct{})
	p := &page{List: responsewriters.List{Items: make([]*watchcache.Entry, 2), Walk: func(visit func(*watchcache.Entry) error) error {
		_ = visit(nil) // which is told of at the end
		<-works
		time.AfterFunc(20*time.Millisecond, func() { close(walks) })
		panic("a bug")
	}}}
	var ended atomic.Bool
	defer func() {
		if v := recover(); v != "a bug" || !ended.Load() {
			t.Errorf("%v, a worker has ended: %v", v, ended.Load())
		}
	}()
	err := a.eachBeside(p, func(*watchcache.Entry) error {
		close(works)
		<-walks
		ended.Store(true)
		return nil
	})
	t.Error(err)
}
