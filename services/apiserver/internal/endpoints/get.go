package endpoints

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/negotiate"
)

// cacheWait is how long a read waits for the cache to reach its version.
const cacheWait = 3 * time.Second

// get answers GET of one object (specification: "Get and list resource-version
// semantics").
func (a *API) get(c *call) error {
	f, err := a.negotiate(c, false)
	if err != nil {
		return err
	}
	revision, err := parseRevision(c.r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if err := a.reach(c.ctx(), revision); err != nil {
		return err
	}
	e, ok := c.store.Get(c.key())
	if !ok {
		return apierrors.NewNotFound(c.GroupResource(), c.info.Name)
	}
	return f.writeObject(c, 200, shownEntry(e))
}

// reach waits until the cache may answer a read at a version: any for 0, the
// newest for -1, else at least that one.
func (a *API) reach(ctx context.Context, revision int64) error {
	if revision == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	if revision < 0 {
		if _, err := a.Cache.MostRecent(ctx); err != nil {
			return errBehind(ctx, err)
		}
		return nil
	}
	if a.Cache.Revision() >= revision {
		return nil
	}
	if err := a.Cache.WaitFor(ctx, revision); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return errTooLargeVersion(revision, a.Cache.Revision())
		}
		return err
	}
	return nil
}

// errBehind answers a consistent read that the store or the cache did not
// answer in time.
func errBehind(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the newest state could not be confirmed in time", 1)
	}
	return err
}

// negotiate chooses the form of an answer.
func (a *API) negotiate(c *call, list bool) (*form, error) {
	forms := []negotiate.As{negotiate.Table, negotiate.PartialObject}
	if list {
		forms = []negotiate.As{negotiate.Table, negotiate.PartialObjectList}
	}
	choice, ok := a.Config.Media.Accept(c.r, forms...)
	if !ok {
		return nil, errNotAcceptable(a.Config.Media.Objects())
	}
	return a.formOf(c, choice)
}
