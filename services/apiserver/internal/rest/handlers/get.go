package handlers

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// cacheWait is how long a read waits until the cache reaches its version.
const cacheWait = 3 * time.Second

// get serves GET of one object (specification: "Get and list resource-version semantics").
func (a *API) get(c *Call) error {
	f, err := a.ForObject(c.R, c.resource)
	if err != nil {
		return err
	}
	if err := noExport(c.R.URL.RawQuery); err != nil {
		return err
	}
	asked, _ := api.Parameter(c.R.URL.RawQuery, "resourceVersion")
	revision, err := parseRevision(asked)
	if err != nil {
		return err
	}
	if revision == 0 && a.NoCache {
		revision = -1
	}
	tracing.Event(c.Context(), "About to Get from storage")
	e, ok, err := c.read(revision, asked)
	if err != nil {
		return err
	}
	if !ok {
		return apierrors.NewNotFound(c.GroupResource(), c.Op.Name)
	}
	if e, err = a.readable(c, e, revision); err != nil {
		return err
	}
	return a.objectError(e, f.WriteObject(c.W, c.R, 200, responsewriters.Entry(e)))
}

// read returns an object from the cache once the cache has reached a version.
func (c *Call) read(revision int64, asked string) (*watchcache.Entry, bool, error) {
	ctx, span := tracing.Start(c.Context(), "cacher.Get", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("audit-id", request.From(c.Context()).TracedID), attribute.String("key", strings.TrimPrefix(c.key(), c.api.Root)),
			attribute.String("resource-version", asked),
		}
	})
	defer span.End()
	if revision < 0 {
		span.Event("About to Get from underlying storage") // at its current revision
	} else {
		span.Event("About to fetch object from cache")
	}
	if err := c.reach(ctx, revision); err != nil {
		return nil, false, err
	}
	e, ok := c.Store.Get(c.key())
	return e, ok, nil
}

// noExport rejects the parameter export, with which old clients request an object without the
// fields that the server sets.
func noExport(query string) error {
	v, ok := api.Parameter(query, "export")
	if !ok || strings.EqualFold(v, "false") || v == "0" {
		return nil
	}
	return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
}

// reach waits until the cache can serve a read at a version: any version for 0, the current one for
// -1, otherwise at least the given one.
func (c *Call) reach(ctx context.Context, revision int64) error {
	if revision < 0 {
		return c.newest(ctx, c.Store)
	}
	if err := c.await(ctx, revision); err != nil {
		return err
	}
	return there(c.Store)
}

// there returns apiset.ErrGone if the cache no longer has the resource.
func there(s *watchcache.Store) error {
	if s.Gone() {
		return apiset.ErrGone
	}
	return nil
}

// selects returns apiset.ErrChanged if objects are selected by fields that the entries of the store
// do not have, because the definition of the kind has changed since. Such fields would be empty.
func (c *Call) selects(o *listOptions, variant string) error {
	if o.FieldSelector != "" && variant != c.Variant {
		return apiset.ErrChanged
	}
	return nil
}

// await is reach for a version other than the current one.
func (c *Call) await(ctx context.Context, revision int64) error {
	switch {
	case revision == 0 && !c.Store.Ready():
		return watchcache.ErrNotReady // an empty cache is not a valid state
	case c.Store.Revision() >= revision:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	err := request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error { return c.Store.WaitFor(ctx, revision) })
	if errors.Is(err, context.DeadlineExceeded) {
		return status.TooLargeVersion(revision, c.Store.Revision())
	}
	return err
}

// newest waits until the cache has the current state of a resource.
func (c *Call) newest(ctx context.Context, s *watchcache.Store) error {
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	defer audit.From(ctx).Track(audit.Store).Done()
	back := request.Suspend(ctx)
	_, err := s.MostRecent(ctx)
	if back(); err != nil {
		return errBehind(ctx, err)
	}
	return there(s)
}

// errBehind replaces the deadline error of a consistent read by the API's timeout error.
func errBehind(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the newest state could not be confirmed in time", 1)
	}
	return err
}
