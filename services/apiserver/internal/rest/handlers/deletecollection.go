package handlers

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
)

// deleteCollection serves DELETE of a collection. It deletes the objects of the matching list and
// returns that list. The first error ends it, after the deletions in progress.
func (a *API) deleteCollection(c *Call) error {
	f, err := a.ForList(c.R, c.resource)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.Op, c.Coder, false, a.WatchList, a.NoCache)
	if err != nil {
		return err
	}
	do, err := a.deleteOptions(c)
	if err != nil {
		return err
	}
	if writes.IgnoresReadErrors(do) {
		return status.Invalid(metaKind("DeleteOptions"), "", field.ErrorList{writes.RefuseForCollections()})
	}
	c.warnOfOrphans(do)
	p, err := a.selectedPage(c, f, o)
	if err != nil {
		return err
	}
	if len(do.DryRun) > 0 {
		if err := request.Estimate(c.Context(), perTried*max(len(p.Items), p.Count)); err != nil {
			return err
		}
	}
	one := func(s *watchcache.Entry) error {
		one := &Call{resource: c.resource, api: a, W: c.W, R: c.R, Op: c.Op.On(s.Namespace(), s.Name())}
		req := one.write(do.DeepCopy(), do.DryRun, "", "")
		req.Collection = true
		if _, err := a.Writes.Delete(c.Context(), req); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
	if err := a.eachBeside(p, one); err != nil {
		return err
	}
	return p.show(c, f)
}

// perTried is the cost in bytes of a dry-run deletion of one object. A dry run never waits for the
// store.
const perTried = 1 << 10

// eachBeside calls visit for the objects of a page, in parallel if so configured. It repanics a
// panic of visit in the goroutine of the request, so that it does not end the server.
func (a *API) eachBeside(p *page, visit func(*watchcache.Entry) error) error {
	if a.DeleteCollectionWorkers <= 1 {
		return p.Each(visit)
	}
	var g errgroup.Group
	var failed atomic.Bool
	var panicked atomic.Pointer[any]
	g.SetLimit(a.DeleteCollectionWorkers)
	defer func() { _ = g.Wait() }() // also if the walk panics: no visit outlives the request
	err := p.Each(func(s *watchcache.Entry) error {
		if failed.Load() {
			return errBeside
		}
		g.Go(func() (err error) {
			defer func() {
				if failure := serving.Failed(recover()); failure != nil {
					panicked.CompareAndSwap(nil, &failure)
					err = errBeside
				}
				if err != nil {
					failed.Store(true)
				}
			}()
			return visit(s)
		})
		return nil
	})
	first := g.Wait()
	if failure := panicked.Load(); failure != nil {
		panic(*failure)
	}
	if first != nil {
		return first
	}
	return err
}

// errBeside ends a walk after an error or panic in another goroutine.
var errBeside = errors.New("another failed")
