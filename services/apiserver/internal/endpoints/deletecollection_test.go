package endpoints

import (
	"errors"
	"testing"

	"binnacle/libs/serving/h2"
	"binnacle/services/apiserver/internal/represent"
	"binnacle/services/apiserver/internal/watchcache"
)

// TestPanicsOfWorkers: what panics while several objects are deleted at a time is a panic of the
// request, which somebody recovers from.
func TestPanicsOfWorkers(t *testing.T) {
	for workers := range 4 {
		a := &API{Config: Config{DeleteCollectionWorkers: workers}}
		p := &page{List: represent.List{Items: make([]*watchcache.Entry, 20), Walk: func(visit func(*watchcache.Entry) error) (err error) {
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
