package handlers

import (
	"context"
	"errors"
	"math"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// eventListed is the span event when the objects of a list are known, named as in Kubernetes.
const eventListed = "Listing from storage done"

// list serves GET of a collection.
func (a *API) list(call *Call) error {
	encoder, o, err := a.parseList(call)
	if err != nil {
		return err
	}
	tracing.Event(call.Context(), "About to List from storage")
	isComplete := o.versionedFields == nil && o.Limit <= 0 && o.Continue == ""
	if isComplete && encoder.CanStream(call.R) {
		snap, ok, err := a.currentSnapshot(call, o)
		if err != nil {
			return err
		}
		if ok {
			return a.streamList(call, encoder, o, snap)
		}
	}
	p, err := a.filteredPage(call, encoder, o)
	if err != nil {
		return err
	}
	tracing.Event(call.Context(), eventListed)
	return a.listError(call, &p.List, p.writeList(call, encoder))
}

// streamList writes the selected objects of a snapshot, without a list of them in memory.
func (a *API) streamList(call *Call, encoder *responsewriters.Encoder, o *listOptions, snap watchcache.Snapshot) error {
	if err := a.checkSnapshot(call, o, snap, "", nil); err != nil {
		return err
	}
	tracing.Event(call.Context(), eventListed)
	err := encoder.StreamList(call.W, call.R, snap, selectionOf(call, o))
	if err == nil {
		return nil
	}
	scan := a.ScanLimiter(call.Context())
	defer scan.Release()
	p, _ := pageOfSnapshot(call, o, snap, "", scan) // the objects up to the error
	return a.listError(call, &p.List, err)
}

// parseList returns the encoder and the options of a list. As in Kubernetes, errors of the
// parameters precede errors of the requested form.
func (a *API) parseList(c *Call) (*responsewriters.Encoder, *listOptions, error) {
	o, err := parseListOptions(c.Info, false, a.WatchList)
	if err != nil {
		return nil, nil, err
	}
	encoder, err := a.ForList(c.R, c.resource)
	if err != nil {
		return nil, nil, err
	}
	return encoder, o, o.resolveAll(c.Coder, a.readsStore(c, o))
}

// minConvertedObjects is the minimum number of objects that a limited list converts at a time to
// select from them.
const minConvertedObjects = 500

// filteredPage returns a page of the objects whose fields in the requested version match the
// selector. If the watch cache evaluates the whole selector, this is readPage. Otherwise it reads
// candidates and converts them until the page is full.
func (a *API) filteredPage(call *Call, encoder *responsewriters.Encoder, o *listOptions) (*page, error) {
	if o.versionedFields == nil {
		return a.readPage(call, o)
	}
	candidates := *o
	if o.Limit > 0 {
		candidates.Limit = max(o.Limit, minConvertedObjects)
	}
	p, err := a.readPage(call, &candidates)
	if err != nil {
		return nil, err
	}
	filtered := &page{revision: p.revision}
	for {
		var entries []*objects.Entry
		if err := p.Each(func(e *objects.Entry) error { entries = append(entries, e); return nil }); err != nil {
			return nil, err
		}
		matches, err := encoder.MatchServed(call.Context(), entries, o.versionedFields)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !matches[e] {
				continue
			}
			if o.Limit > 0 && int64(len(filtered.Items)) == o.Limit {
				filtered.lastKey = filtered.Items[o.Limit-1].Key()
				return filtered, nil
			}
			filtered.Items = append(filtered.Items, e)
		}
		if p.lastKey == "" {
			return filtered, nil
		}
		if p, err = a.pageAtRevision(call, &candidates, filtered.revision, p.lastKey+"\x00"); err != nil {
			return nil, err
		}
	}
}

// waitForListVersion waits until the cache has a revision. The wait has a separate span.
func (c *Call) waitForListVersion(revision int64) error {
	ctx, span := tracing.Start(c.Context(), "cacher.GetList", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("audit-id", request.FromContext(c.Context()).TracedID),
			attribute.String("type", c.GroupResource().String()),
		}
	})
	defer span.End()
	err := c.waitForVersion(ctx, revision)
	if err == nil {
		span.Event("Ready")
	}
	return err
}

// currentSnapshot returns the state for an unlimited list. It returns false if the list is at an
// exact revision, which the cache may not have.
func (a *API) currentSnapshot(c *Call, o *listOptions) (watchcache.Snapshot, bool, error) {
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return watchcache.Snapshot{}, false, nil
	}
	if err := c.waitForListVersion(o.revision); err != nil {
		return watchcache.Snapshot{}, false, err
	}
	return c.Store.Snapshot(), true, nil
}

// readPage returns the objects that a list selects (specification: "Get and list resource-version
// semantics" and "Chunked listing").
func (a *API) readPage(call *Call, o *listOptions) (*page, error) {
	if o.Limit < 0 {
		o.Limit = 0
	}
	if o.Continue != "" {
		return a.continuedPage(call, o)
	}
	// As in Kubernetes, a limited list without resourceVersionMatch is at exactly the given version,
	// unless it selects one object.
	defaultsToExact := o.ResourceVersionMatch == "" && o.Limit > 0 && o.revision > 0 && !call.selectsOne(o)
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || defaultsToExact {
		return a.pageAtRevision(call, o, o.revision, "")
	}
	if err := call.waitForListVersion(o.revision); err != nil {
		return nil, err
	}
	scan := a.ScanLimiter(call.Context())
	defer scan.Release()
	return a.checkedPage(call, o, call.Store.Snapshot(), "", scan)
}

// checkedPage returns a page of a snapshot's objects from a key on, or an error if any of them is
// unreadable.
func (a *API) checkedPage(
	c *Call,
	o *listOptions,
	snap watchcache.Snapshot,
	from string,
	scan *responsewriters.ScanLimiter,
) (*page, error) {
	if err := a.checkSnapshot(c, o, snap, from, scan); err != nil {
		return nil, err
	}
	return pageOfSnapshot(c, o, snap, from, scan)
}

// checkSnapshot returns an error if a snapshot lacks the selected fields or has unreadable objects
// from a key on.
func (a *API) checkSnapshot(
	c *Call,
	o *listOptions,
	snap watchcache.Snapshot,
	from string,
	scan *responsewriters.ScanLimiter,
) error {
	if err := c.checkSelectable(o, snap.Variant()); err != nil {
		return err
	}
	return a.checkReadable(c, o, snap, from, scan)
}

// continuedPage returns the page after a continue token, at the version of the first page.
func (a *API) continuedPage(call *Call, o *listOptions) (*page, error) {
	from, revision, err := decodeContinue(o.Continue, call.listPrefix())
	if err != nil {
		return nil, err
	}
	if o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if revision < 0 { // the token continues in the current state, which may differ from the first page's
		if err := call.waitForVersion(call.Context(), -1); err != nil {
			return nil, err
		}
		scan := a.ScanLimiter(call.Context())
		defer scan.Release()
		return a.checkedPage(call, o, call.Store.Snapshot(), from, scan)
	}
	p, err := a.pageAtRevision(call, o, revision, from)
	if apierrors.IsResourceExpired(err) {
		return nil, expiredToken(from, call.listPrefix())
	}
	return p, err
}

// expiredToken returns the 410 error for a token whose version is no longer available. It contains
// a token that continues at the same key in the current state.
func expiredToken(from, prefix string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response " +
		"to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
		"objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	lastKey := strings.TrimSuffix(from, "\x00")
	err.ErrStatus.ListMeta.Continue = encodeContinue(lastKey, prefix, currentState)
	return err
}

// pageAtRevision reads a page at one revision: from a snapshot if the cache has it, otherwise from
// the store.
func (a *API) pageAtRevision(call *Call, o *listOptions, revision int64, from string) (*page, error) {
	ctx, cancel := context.WithTimeout(call.Context(), cacheWait)
	defer cancel()

	// 1. The store may have reached the version before the cache.
	if call.Store.Revision() < revision {
		resume := request.Suspend(ctx)
		now, err := call.Store.MostRecent(ctx)
		resume()
		if err != nil {
			return nil, consistentReadError(ctx, err)
		}
		if now < revision {
			return nil, status.TooLargeVersion(revision, now)
		}
	}

	// 2. Read from the cache if it has the state of that revision.
	scan := a.ScanLimiter(call.Context())
	defer scan.Release()
	snap, ok := call.Store.SnapshotAt(revision, scan.Pause)
	if err := scan.Err(); err != nil {
		return nil, err
	}
	if ok {
		if err := a.checkRetained(call, revision); err != nil {
			return nil, err
		}
		p, err := a.checkedPage(call, o, snap, from, scan)
		if err != nil {
			return nil, err
		}
		p.revision = revision
		return p, nil
	}

	// 3. Otherwise read from the store.
	scan.Release()
	return a.pageOfStore(call, o, revision, from)
}

// checkRetained returns an error unless the store still has the history of a revision. The watch
// cache may have a state that the store has compacted, but how long a client can continue a list must
// not depend on how often its resource changes. The prefix itself is not a key, so the read is small.
func (a *API) checkRetained(c *Call, revision int64) error {
	resume := request.Suspend(c.Context())
	_, _, err := a.Store.Get(c.Context(), c.Prefix, revision)
	resume()
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if future := new(storage.FutureError); errors.As(err, &future) { // the store's revision went backwards
		return status.TooLargeVersion(revision, future.Current)
	}
	return c.objectRef().Translate(err)
}

// pageOfSnapshot returns a page of a snapshot's objects from a key on. Its only errors are errors
// of scan.
func pageOfSnapshot(
	call *Call,
	o *listOptions,
	snap watchcache.Snapshot,
	from string,
	scan *responsewriters.ScanLimiter,
) (*page, error) {
	p := &page{revision: snap.Revision()}
	limit := o.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if o.selectsAll() {
		n := int64(snap.Count(call.listPrefix(), from))
		p.Items = make([]*objects.Entry, 0, min(n, limit))
		if n > limit {
			left := n - limit
			p.remaining = &left
		}
	}
	sel := selectionOf(call, o)
	sel.Pause = scan.Pause
	snap.Select(sel, from, func(e *objects.Entry) bool {
		if int64(len(p.Items)) == limit {
			p.lastKey = p.Items[limit-1].Key()
			return false
		}
		p.Items = append(p.Items, e)
		return true
	})
	return p, scan.Err()
}
