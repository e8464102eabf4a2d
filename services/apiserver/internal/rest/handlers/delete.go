package handlers

import (
	"errors"
	"net/http"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/serving/exchange"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// unsafeAnnotation is the audit annotation of a deletion that ignores read errors. Most audit
// levels do not record the options of a deletion.
const unsafeAnnotation = "apiserver.k8s.io/unsafe-delete-ignore-read-error"

// delete serves DELETE of an object.
func (a *API) delete(call *Call) error {
	encoder, err := a.ForObject(call.R, call.resource, call.Sub)
	if err != nil {
		return err
	}
	deleteOptions, err := a.deleteOptions(call)
	if err != nil {
		return err
	}
	call.warnOfOrphans(deleteOptions)
	if writes.IgnoresReadErrors(deleteOptions) {
		audit.FromContext(call.Context()).Annotate(unsafeAnnotation, "")
		if err := a.Writer.DeleteCorrupt(call.Context(), call.newWriteRequest(deleteOptions, nil, "", "")); err != nil {
			return err
		}
		a.WriteDeleted(call.W, call.R, &metav1.StatusDetails{Name: call.Info.Name, Kind: call.Kind.Kind})
		return nil
	}
	res, err := a.Writer.Delete(call.Context(), call.newWriteRequest(deleteOptions, deleteOptions.DryRun, "", ""))
	if err != nil {
		return err
	}
	code := http.StatusOK
	deletesDependents := deleteOptions.OrphanDependents != nil && !*deleteOptions.OrphanDependents //nolint:staticcheck // clients still send it
	if !res.Deleted && deletesDependents {
		code = http.StatusAccepted
	}
	if res.Deleted && !call.Delete.ReturnObject {
		if encoder.Representation == negotiation.Table && call.Delete.NoTable {
			call.R.Header.Set("Accept", encoder.Media)
		}
		a.WriteSuccess(
			call.W,
			call.R,
			code,
			&metav1.StatusDetails{Name: call.Info.Name, Group: call.Group, Kind: call.Resource, UID: res.Object.GetUID()},
		)
		return nil
	}
	return encoder.WriteObject(call.W, call.R, code, responsewriters.FromStored(res.Item))
}

// warnOfOrphans warns clients that set no propagation policy that dependents are kept.
func (c *Call) warnOfOrphans(options *metav1.DeleteOptions) {
	setsPolicy := options.OrphanDependents != nil || options.PropagationPolicy != nil //nolint:staticcheck // clients still send it
	if c.Delete.OrphanWarning != "" && !setsPolicy {
		request.Warn(c.Context(), c.Delete.OrphanWarning)
	}
}

// deleteOptions decodes the options from the body or, if it is empty, from the query.
func (a *API) deleteOptions(call *Call) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	body, err := readBody(call.R)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		media, err := a.bodyType(call)
		if err != nil {
			return nil, err
		}
		// Typed clients send them in the group version of the deleted object.
		gvk, err := a.Codec.DecodeInto(media, body, options)
		if err != nil {
			return nil, undecodableError(err, gvk, "DeleteOptions", body)
		}
		if gvk.Kind != "" && gvk.Kind != "DeleteOptions" {
			return nil, apierrors.NewBadRequest("decoded object cannot be converted to DeleteOptions")
		}
		options.TypeMeta = metav1.TypeMeta{}
		tracing.Event(call.Context(), "Decoded delete options")
		call.recordDeleteOptions(options)
		tracing.Event(call.Context(), eventRecorded)
	} else {
		query := call.R.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, options, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if !a.CorruptObjects.Named {
		options.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	}
	if errs := metav1validation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, status.Invalid(metaKind("DeleteOptions"), "", errs)
	}
	return options, nil
}

// deleteCollection serves DELETE of a collection. It deletes the objects of the matching list and
// returns that list. The first error stops it, after the deletions in progress.
func (a *API) deleteCollection(call *Call) error {
	// 1. Parse the list options and the delete options.
	encoder, err := a.ForList(call.R, call.resource)
	if err != nil {
		return err
	}
	options, err := parseListOptions(call.Info, false, a.WatchList)
	if err != nil {
		return err
	}
	if err := options.resolveFields(call.Coder); err != nil {
		return err
	}
	deleteOptions, err := a.deleteOptions(call)
	if err != nil {
		return err
	}
	if writes.IgnoresReadErrors(deleteOptions) {
		return status.Invalid(metaKind("DeleteOptions"), "", field.ErrorList{writes.RejectForCollections()})
	}
	call.warnOfOrphans(deleteOptions)
	if err := options.resolveRevision(a.readsStore(call, options)); err != nil { // as in Kubernetes, after the warning
		return err
	}

	// 2. List the objects.
	result, err := a.filteredPage(call, encoder, options)
	if err != nil {
		return err
	}
	count := max(len(result.Items), result.Count)
	if call.Namespaced && call.Info.Namespace == "" && count > 0 { // as in Kubernetes, unless the list is empty
		return errNoNamespace()
	}
	if len(deleteOptions.DryRun) > 0 {
		if err := request.Estimate(call.Context(), dryRunCost*count); err != nil {
			return err
		}
	}

	// 3. Delete them.
	deleteOne := func(e *objects.Entry) error {
		objectCall := &Call{resource: call.resource, api: a, W: call.W, R: call.R, Info: call.Info.ForObject(e.Namespace(), e.Name())}
		req := objectCall.newWriteRequest(deleteOptions.DeepCopy(), deleteOptions.DryRun, "", "")
		req.Collection = true
		if _, err := a.Writer.Delete(call.Context(), req); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
	if err := a.eachInParallel(result, deleteOne); err != nil {
		return err
	}
	return result.writeList(call, encoder)
}

// dryRunCost is the cost in bytes of a dry-run deletion of one object. A dry run never waits for
// the store.
const dryRunCost = 1 << 10

// eachInParallel calls visit for the objects of a page, in DeleteCollectionWorkers goroutines. It
// repeats a panic of visit in the goroutine of the request, whose handler recovers it.
func (a *API) eachInParallel(list *page, visit func(*objects.Entry) error) error {
	if a.DeleteCollectionWorkers <= 1 {
		return list.Each(visit)
	}
	var group errgroup.Group
	var failed atomic.Bool
	var panicValue atomic.Pointer[any] // of the first panic
	group.SetLimit(a.DeleteCollectionWorkers)
	defer func() { _ = group.Wait() }() // also if the walk panics: no visit outlives the request
	err := list.Each(func(entry *objects.Entry) error {
		if failed.Load() {
			return errParallel
		}
		group.Go(func() (err error) {
			defer func() {
				if failure := exchange.Failed(recover()); failure != nil {
					panicValue.CompareAndSwap(nil, &failure)
					err = errParallel
				}
				if err != nil {
					failed.Store(true)
				}
			}()
			return visit(entry)
		})
		return nil
	})
	firstErr := group.Wait()
	if failure := panicValue.Load(); failure != nil {
		panic(*failure)
	}
	if firstErr != nil {
		return firstErr
	}
	return err
}

// errParallel stops a walk after an error or panic in another goroutine.
var errParallel = errors.New("deletion of another object failed")
