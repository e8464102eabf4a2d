package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/componentstatus"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// cacheWait is how long a read waits until the cache reaches its revision.
const cacheWait = 3 * time.Second

// get serves GET of one object (specification: "Get and list resource-version semantics").
func (a *API) get(call *Call) error {
	encoder, err := a.ForObject(call.R, call.resource, call.Sub)
	if err != nil {
		return err
	}
	if err := rejectExport(call.R.URL.RawQuery); err != nil {
		return err
	}
	version, _ := api.Parameter(call.R.URL.RawQuery, "resourceVersion")
	revision, err := parseRevision(version)
	if err != nil {
		return err
	}
	if revision == 0 && a.NoCache {
		revision = -1
	}
	tracing.Event(call.Context(), "About to Get from storage")
	entry, ok, err := call.readCached(revision, version)
	if err != nil {
		return err
	}
	if !ok {
		return apierrors.NewNotFound(call.GroupResource(), call.Info.Name)
	}
	if entry, err = a.intactEntry(call, entry, revision); err != nil {
		return err
	}
	return a.objectError(entry, encoder.WriteObject(call.W, call.R, 200, responsewriters.FromEntry(entry)))
}

// readCached returns an object from the cache once the cache has reached a revision. version is the
// resourceVersion of the request, for the span.
func (c *Call) readCached(revision int64, version string) (*objects.Entry, bool, error) {
	ctx, span := tracing.Start(c.Context(), "cacher.Get", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("audit-id", request.FromContext(c.Context()).TracedID), attribute.String("key",
				strings.TrimPrefix(c.objectKey(), c.api.Root)),
			attribute.String("resource-version", version),
		}
	})
	defer span.End()
	if revision < 0 {
		span.Event("About to Get from underlying storage") // at its current revision
	} else {
		span.Event("About to fetch object from cache")
	}
	if err := c.waitForCache(ctx, revision); err != nil {
		return nil, false, err
	}
	entry, ok := c.Store.Get(c.objectKey())
	return entry, ok, nil
}

// rejectExport rejects the parameter export, with which old clients request an object without the
// fields that the server sets.
func rejectExport(query string) error {
	value, ok := api.Parameter(query, "export")
	if !ok || strings.EqualFold(value, "false") || value == "0" {
		return nil
	}
	return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
}

// waitForCache waits until the cache can serve a read: from any state for revision 0, from the
// current state for -1, otherwise from a state of at least the given revision.
func (c *Call) waitForCache(ctx context.Context, revision int64) error {
	if revision < 0 {
		return c.waitForCurrent(ctx, c.Store)
	}
	if err := c.waitForRevision(ctx, revision); err != nil {
		return err
	}
	return checkNotGone(c.Store)
}

// checkNotGone returns apiset.ErrGone if the cache no longer has the resource.
func checkNotGone(store *watchcache.Store) error {
	if store.Gone() {
		return apiset.ErrGone
	}
	return nil
}

// checkSelectable returns apiset.ErrChanged if objects are selected by fields that the entries of
// the store do not have, because the definition of the kind has changed since. Such fields would be
// empty.
func (c *Call) checkSelectable(options *listOptions, variant string) error {
	if options.FieldSelector != "" && variant != c.Variant {
		return apiset.ErrChanged
	}
	return nil
}

// waitForRevision is waitForCache for a revision of at least 0.
func (c *Call) waitForRevision(ctx context.Context, revision int64) error {
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

// waitForCurrent waits until the cache has the current state of a resource.
func (c *Call) waitForCurrent(ctx context.Context, store *watchcache.Store) error {
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	defer audit.FromContext(ctx).StartTimer(audit.Store).Stop()
	resume := request.Suspend(ctx)
	_, err := store.MostRecent(ctx)
	resume()
	if err != nil {
		return consistentReadError(ctx, err)
	}
	return checkNotGone(store)
}

// consistentReadError replaces the deadline error of a consistent read by the API's timeout error.
func consistentReadError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the newest state could not be confirmed in time", 1)
	}
	return err
}

// A corrupt object does not fail reads of other objects:
//
//   - A GET of the object fails, as in Kubernetes. A list that contains it fails too, if it is at a
//     given revision or at the current one.
//   - A list at any revision (resourceVersion=0) and a watch, with which informers start,
//     leave out an undecodable object. They leave out an object that cannot be
//     decrypted only where errors name objects, as in Kubernetes: the key may become
//     available again.

// errStopWalk stops a walk that has found enough objects.
var errStopWalk = errors.New("enough")

// intactEntry returns the entry, or an error if its object is corrupt. If the reason may have passed,
// it first reads the object from the store again.
func (a *API) intactEntry(call *Call, entry *objects.Entry, revision int64) (*objects.Entry, error) {
	var corruption *storage.CorruptObjectError
	if !errors.As(entry.Corrupt(), &corruption) {
		return entry, nil
	}
	if revision == 0 && a.CorruptObjects.Named {
		return nil, apierrors.NewNotFound(call.GroupResource(), call.Info.Name)
	}
	if corruption.Transient {
		kv, _, err := a.Store.Get(call.Context(), entry.Key(), 0)
		if err == nil {
			entry = call.Store.Entry(kv)
			if entry.Corrupt() == nil {
				return entry, nil
			}
		} else if errors.Is(err, storage.ErrNotFound) {
			return nil, call.objectRef().Translate(err)
		}
		errors.As(errors.Join(err, entry.Corrupt()), &corruption)
	}
	return nil, a.CorruptObjects.OfObject(corruption)
}

// objectError converts the error of an undecodable object to its API
// error. It returns all other errors unchanged.
func (a *API) objectError(entry *objects.Entry, err error) error {
	var undecodable *codec.UndecodableError
	if !errors.As(err, &undecodable) {
		return err
	}
	return a.CorruptObjects.OfObject(
		&storage.CorruptObjectError{Key: entry.Key(), Revision: entry.Revision, Undecodable: true, Err: undecodable},
	)
}

// omitsCorrupt reports whether a list at any revision and a watch leave out a corrupt object.
func (a *API) omitsCorrupt(entry *objects.Entry) bool {
	var corruption *storage.CorruptObjectError
	return a.CorruptObjects.Named || errors.As(entry.Corrupt(), &corruption) && corruption.Undecodable
}

// checkNotCorrupt returns an error if a list of a snapshot's objects from a key on, up to its limit,
// contains corrupt objects that it does not leave out. It searches a limited list in parts.
func (a *API) checkNotCorrupt(
	call *Call,
	options *listOptions,
	snap watchcache.Snapshot,
	from string,
	scan *responsewriters.ScanLimiter,
) error {
	selection := selectionOf(call, options)
	var corrupt []*storage.CorruptObjectError
	snap.SelectCorrupt(selection, from, func(e *objects.Entry) bool {
		if (options.Watch || options.revision == 0) && a.omitsCorrupt(e) {
			return true
		}
		corrupt = appendCorrupt(corrupt, e)
		return len(corrupt) == 0 || !a.CorruptObjects.CanStop(len(corrupt))
	})
	if options.Limit > 0 && len(corrupt) > 0 {
		// Drop the corrupt objects after the last object of the page.
		last, left, end := "", options.Limit, corrupt[len(corrupt)-1].Key
		selection.Pause = scan.Pause
		snap.Select(selection, from, func(e *objects.Entry) bool {
			last = e.Key()
			left--
			return left > 0 && last < end // no known corrupt object follows
		})
		if err := scan.Err(); err != nil {
			return err
		}
		for n := len(corrupt); left == 0 && n > 0 && corrupt[n-1].Key > last; n-- {
			corrupt = corrupt[:n-1]
		}
	}
	if len(corrupt) == 0 {
		return nil
	}
	return a.CorruptObjects.OfList(call.GroupResource(), corrupt)
}

// appendCorrupt appends the read error of an entry, if it has one.
func appendCorrupt(corrupt []*storage.CorruptObjectError, entry *objects.Entry) []*storage.CorruptObjectError {
	var corruption *storage.CorruptObjectError
	if errors.As(entry.Corrupt(), &corruption) {
		corrupt = append(corrupt, corruption)
	}
	return corrupt
}

// listError converts the error of a list that contains undecodable objects to its API error, which
// names them. Encoding failed before anything was sent. It returns all other errors unchanged.
func (a *API) listError(call *Call, list *responsewriters.List, err error) error {
	var undecodable *codec.UndecodableError
	if !errors.As(err, &undecodable) {
		return err
	}
	var corrupt []*storage.CorruptObjectError
	_ = list.Each(func(e *objects.Entry) error {
		_, failed := call.Coder.DecodeItem(call.Context(), codec.Item{Stored: e.Stored(), Revision: e.Revision})
		if errors.As(failed, &undecodable) {
			corrupt = append(corrupt, &storage.CorruptObjectError{Key: e.Key(), Revision: e.Revision, Undecodable: true, Err: undecodable})
			if a.CorruptObjects.CanStop(len(corrupt)) {
				return errStopWalk
			}
		}
		return nil
	})
	if len(corrupt) == 0 {
		return err
	}
	return a.CorruptObjects.OfList(call.GroupResource(), corrupt)
}

// componentResource is the name of the resource in messages.
var componentResource = schema.GroupResource{Resource: "componentstatus"}

// componentEntry returns the status of a component as a cache entry.
func (call *Call) componentEntry(ctx context.Context, component *componentstatus.Component) (*objects.Entry, error) {
	stored, err := call.Coder.EncodeStored(component.CheckStatus(ctx))
	if err != nil {
		return nil, err
	}
	return objects.Uncached(component.Name, stored), nil
}

// listComponents checks the selected components in parallel and writes their list.
func (a *API) listComponents(call *Call) error {
	watch := call.Info.Verb == "watch"
	options, err := parseListOptions(call.Info, watch, a.WatchList)
	if err != nil {
		return err
	}
	encoder, err := a.ForList(call.R, call.resource)
	if err != nil {
		return err
	}
	if options.fieldSelector, err = kindFields(options.fieldSelector, call.Coder); err != nil {
		return err
	}
	if watch {
		err := apierrors.NewMethodNotSupported(call.GroupResource(), "watch")
		err.ErrStatus.Message = fmt.Sprintf("watch is not supported on resources of kind %q", call.Resource)
		return err
	}
	list := &responsewriters.List{}
	var selected []*componentstatus.Component
	for i := range a.Components {
		named := fields.Set{metav1.ObjectNameField: a.Components[i].Name}
		if options.labelSelector.Matches(labels.Set{}) && options.fieldSelector.Matches(named) {
			selected = append(selected, &a.Components[i])
		}
	}
	list.Items = make([]*objects.Entry, len(selected))
	group, ctx := errgroup.WithContext(call.Context())
	for i, component := range selected {
		group.Go(func() (err error) {
			list.Items[i], err = call.componentEntry(ctx, component)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return encoder.WriteList(call.W, call.R, list)
}

// getComponent checks a component and writes its status.
func (a *API) getComponent(call *Call) error {
	encoder, err := a.ForObject(call.R, call.resource, call.Sub)
	if err != nil {
		return err
	}
	if err := rejectExport(call.R.URL.RawQuery); err != nil {
		return err
	}
	for i := range a.Components {
		if a.Components[i].Name != call.Info.Name {
			continue
		}
		entry, err := call.componentEntry(call.Context(), &a.Components[i])
		if err != nil {
			return err
		}
		return encoder.WriteObject(call.W, call.R, http.StatusOK, responsewriters.FromEntry(entry))
	}
	return apierrors.NewNotFound(componentResource, call.Info.Name)
}
