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

// eventListed is the span event that marks that the objects of a list are known, named as in Kubernetes.
const eventListed = "Listing from storage done"

// list serves GET of a collection.
func (a *API) list(call *Call) error {
	encoder, options, err := a.parseList(call)
	if err != nil {
		return err
	}
	tracing.Event(call.Context(), "About to List from storage")
	isComplete := options.versionedFields == nil && options.Limit <= 0 && options.Continue == ""
	if isComplete && encoder.CanStream(call.R) {
		snap, ok, err := a.currentSnapshot(call, options)
		if err != nil {
			return err
		}
		if ok {
			return a.streamList(call, encoder, options, snap)
		}
	}
	result, err := a.filteredPage(call, encoder, options)
	if err != nil {
		return err
	}
	tracing.Event(call.Context(), eventListed)
	return a.listError(call, &result.List, result.writeList(call, encoder))
}

// streamList writes the selected objects of a snapshot, without a list of them in memory.
func (a *API) streamList(call *Call, encoder *responsewriters.Encoder, options *listOptions, snap watchcache.Snapshot) error {
	if err := a.checkSnapshot(call, options, snap, "", nil); err != nil {
		return err
	}
	tracing.Event(call.Context(), eventListed)
	err := encoder.StreamList(call.W, call.R, snap, selectionOf(call, options))
	if err == nil {
		return nil
	}
	scan := a.ScanLimiter(call.Context())
	defer scan.Release()
	found, _ := pageOfSnapshot(call, options, snap, "", scan) // the objects up to the error
	return a.listError(call, &found.List, err)
}

// parseList returns the encoder and the options of a list. As in Kubernetes, errors of the
// parameters precede errors of the requested form.
func (a *API) parseList(call *Call) (*responsewriters.Encoder, *listOptions, error) {
	options, err := parseListOptions(call.Info, false, a.WatchList)
	if err != nil {
		return nil, nil, err
	}
	encoder, err := a.ForList(call.R, call.resource)
	if err != nil {
		return nil, nil, err
	}
	return encoder, options, options.resolveAll(call.Coder, a.readsStore(call, options))
}

// minConvertedObjects is the minimum number of objects that a limited list converts at a time to
// select from them.
const minConvertedObjects = 500

// filteredPage returns a page of the objects whose fields in the requested version match the
// selector. If the watch cache evaluates the whole selector, this is readPage. Otherwise it reads
// candidates and converts them until the page is full.
func (a *API) filteredPage(call *Call, encoder *responsewriters.Encoder, options *listOptions) (*page, error) {
	if options.versionedFields == nil {
		return a.readPage(call, options)
	}
	candidateOptions := *options
	if options.Limit > 0 {
		candidateOptions.Limit = max(options.Limit, minConvertedObjects)
	}
	candidates, err := a.readPage(call, &candidateOptions)
	if err != nil {
		return nil, err
	}
	filtered := &page{revision: candidates.revision}
	for {
		var entries []*objects.Entry
		if err := candidates.Each(func(entry *objects.Entry) error { entries = append(entries, entry); return nil }); err != nil {
			return nil, err
		}
		matches, err := encoder.MatchServed(call.Context(), entries, options.versionedFields)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if !matches[entry] {
				continue
			}
			if options.Limit > 0 && int64(len(filtered.Items)) == options.Limit {
				filtered.lastKey = filtered.Items[options.Limit-1].Key()
				return filtered, nil
			}
			filtered.Items = append(filtered.Items, entry)
		}
		if candidates.lastKey == "" {
			return filtered, nil
		}
		if candidates, err = a.pageAtRevision(call, &candidateOptions, filtered.revision, candidates.lastKey+"\x00"); err != nil {
			return nil, err
		}
	}
}

// waitForListCache is waitForCache in a separate span.
func (c *Call) waitForListCache(revision int64) error {
	ctx, span := tracing.Start(c.Context(), "cacher.GetList", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("audit-id", request.FromContext(c.Context()).TracedID),
			attribute.String("type", c.GroupResource().String()),
		}
	})
	defer span.End()
	err := c.waitForCache(ctx, revision)
	if err == nil {
		span.Event("Ready")
	}
	return err
}

// currentSnapshot returns the state for an unlimited list. It returns false if the list is at an
// exact revision, which the cache may not have.
func (a *API) currentSnapshot(call *Call, options *listOptions) (watchcache.Snapshot, bool, error) {
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return watchcache.Snapshot{}, false, nil
	}
	if err := call.waitForListCache(options.revision); err != nil {
		return watchcache.Snapshot{}, false, err
	}
	return call.Store.Snapshot(), true, nil
}

// readPage returns the objects that a list selects (specification: "Get and list resource-version
// semantics" and "Chunked listing").
func (a *API) readPage(call *Call, options *listOptions) (*page, error) {
	if options.Limit < 0 {
		options.Limit = 0
	}
	if options.Continue != "" {
		return a.continuedPage(call, options)
	}
	// As in Kubernetes, a limited list without resourceVersionMatch is at exactly the given revision,
	// unless it selects one object.
	defaultsToExact := options.ResourceVersionMatch == "" && options.Limit > 0 && options.revision > 0 && !call.selectsOne(options)
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact || defaultsToExact {
		return a.pageAtRevision(call, options, options.revision, "")
	}
	if err := call.waitForListCache(options.revision); err != nil {
		return nil, err
	}
	scan := a.ScanLimiter(call.Context())
	defer scan.Release()
	return a.checkedPage(call, options, call.Store.Snapshot(), "", scan)
}

// checkedPage returns a page of a snapshot's objects from a key on, or an error if any of them is
// corrupt.
func (a *API) checkedPage(
	call *Call,
	options *listOptions,
	snap watchcache.Snapshot,
	from string,
	scan *responsewriters.ScanLimiter,
) (*page, error) {
	if err := a.checkSnapshot(call, options, snap, from, scan); err != nil {
		return nil, err
	}
	return pageOfSnapshot(call, options, snap, from, scan)
}

// checkSnapshot returns an error if a snapshot lacks the selected fields or has corrupt objects
// from a key on.
func (a *API) checkSnapshot(
	call *Call,
	options *listOptions,
	snap watchcache.Snapshot,
	from string,
	scan *responsewriters.ScanLimiter,
) error {
	if err := call.checkSelectable(options, snap.Variant()); err != nil {
		return err
	}
	return a.checkNotCorrupt(call, options, snap, from, scan)
}

// continuedPage returns the page after a continue token, at the revision of the first page.
func (a *API) continuedPage(call *Call, options *listOptions) (*page, error) {
	from, revision, err := decodeContinue(options.Continue, call.listPrefix())
	if err != nil {
		return nil, err
	}
	if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if revision < 0 { // the token continues in the current state, which may differ from the first page's
		if err := call.waitForCache(call.Context(), -1); err != nil {
			return nil, err
		}
		scan := a.ScanLimiter(call.Context())
		defer scan.Release()
		return a.checkedPage(call, options, call.Store.Snapshot(), from, scan)
	}
	result, err := a.pageAtRevision(call, options, revision, from)
	if apierrors.IsResourceExpired(err) {
		return nil, expiredToken(from, call.listPrefix())
	}
	return result, err
}

// expiredToken returns the 410 error for a token whose revision is no longer available. It contains
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
func (a *API) pageAtRevision(call *Call, options *listOptions, revision int64, from string) (*page, error) {
	ctx, cancel := context.WithTimeout(call.Context(), cacheWait)
	defer cancel()

	// 1. The store may have reached the revision before the cache.
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
		result, err := a.checkedPage(call, options, snap, from, scan)
		if err != nil {
			return nil, err
		}
		result.revision = revision
		return result, nil
	}

	// 3. Otherwise read from the store.
	scan.Release()
	return a.pageOfStore(call, options, revision, from)
}

// checkRetained returns an error unless the store still has the history of a revision. The watch
// cache may have a state that the store has compacted, but how long a client can continue a list must
// not depend on how often its resource changes. The prefix itself is not a key, so the read is small.
func (a *API) checkRetained(call *Call, revision int64) error {
	resume := request.Suspend(call.Context())
	_, _, err := a.Store.Get(call.Context(), call.Prefix, revision)
	resume()
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if future := new(storage.FutureError); errors.As(err, &future) { // the store's revision went backwards
		return status.TooLargeVersion(revision, future.Current)
	}
	return call.objectRef().Translate(err)
}

// pageOfSnapshot returns a page of a snapshot's objects from a key on. Its only errors are errors
// of scan.
func pageOfSnapshot(
	call *Call,
	options *listOptions,
	snap watchcache.Snapshot,
	from string,
	scan *responsewriters.ScanLimiter,
) (*page, error) {
	result := &page{revision: snap.Revision()}
	limit := options.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if options.selectsAll() {
		count := int64(snap.Count(call.listPrefix(), from))
		result.Items = make([]*objects.Entry, 0, min(count, limit))
		if count > limit {
			left := count - limit
			result.remaining = &left
		}
	}
	selection := selectionOf(call, options)
	selection.Pause = scan.Pause
	snap.Select(selection, from, func(e *objects.Entry) bool {
		if int64(len(result.Items)) == limit {
			result.lastKey = result.Items[limit-1].Key()
			return false
		}
		result.Items = append(result.Items, e)
		return true
	})
	return result, scan.Err()
}
