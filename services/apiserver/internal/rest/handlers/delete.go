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
func (a *API) delete(c *Call) error {
	encoder, err := a.ForObject(c.R, c.resource, c.Sub)
	if err != nil {
		return err
	}
	o, err := a.deleteOptions(c)
	if err != nil {
		return err
	}
	c.warnOfOrphans(o)
	if writes.IgnoresReadErrors(o) {
		audit.FromContext(c.Context()).Annotate(unsafeAnnotation, "")
		if err := a.Writer.DeleteUnreadable(c.Context(), c.newWriteRequest(o, nil, "", "")); err != nil {
			return err
		}
		a.WriteDeleted(c.W, c.R, &metav1.StatusDetails{Name: c.Info.Name, Kind: c.Kind.Kind})
		return nil
	}
	res, err := a.Writer.Delete(c.Context(), c.newWriteRequest(o, o.DryRun, "", ""))
	if err != nil {
		return err
	}
	code := http.StatusOK
	deletesDependents := o.OrphanDependents != nil && !*o.OrphanDependents //nolint:staticcheck // clients still send it
	if !res.Deleted && deletesDependents {
		code = http.StatusAccepted
	}
	if res.Deleted && !c.Delete.ReturnObject {
		if encoder.Representation == negotiation.Table && c.Delete.NoTable {
			c.R.Header.Set("Accept", encoder.Media)
		}
		a.WriteSuccess(
			c.W,
			c.R,
			code,
			&metav1.StatusDetails{Name: c.Info.Name, Group: c.Group, Kind: c.Resource, UID: res.Object.GetUID()},
		)
		return nil
	}
	return encoder.WriteObject(c.W, c.R, code, responsewriters.FromStored(res.Item))
}

// warnOfOrphans warns clients that set no propagation policy that dependents are kept.
func (c *Call) warnOfOrphans(o *metav1.DeleteOptions) {
	setsPolicy := o.OrphanDependents != nil || o.PropagationPolicy != nil //nolint:staticcheck // clients still send it
	if c.Delete.OrphanWarning != "" && !setsPolicy {
		request.Warn(c.Context(), c.Delete.OrphanWarning)
	}
}

// deleteOptions decodes the options from the body or, if it is empty, from the query.
func (a *API) deleteOptions(c *Call) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	body, err := readBody(c.R)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		media, err := a.bodyType(c)
		if err != nil {
			return nil, err
		}
		// Typed clients send them in the group version of the deleted object.
		gvk, err := a.Codec.DecodeInto(media, body, o)
		if err != nil {
			return nil, undecodableError(err, gvk, "DeleteOptions", body)
		}
		if gvk.Kind != "" && gvk.Kind != "DeleteOptions" {
			return nil, apierrors.NewBadRequest("decoded object cannot be converted to DeleteOptions")
		}
		o.TypeMeta = metav1.TypeMeta{}
		tracing.Event(c.Context(), "Decoded delete options")
		c.recordDeleteOptions(o)
		tracing.Event(c.Context(), eventRecorded)
	} else {
		q := c.R.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&q, o, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if !a.CorruptObjects.Named {
		o.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	}
	if errs := metav1validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, status.Invalid(metaKind("DeleteOptions"), "", errs)
	}
	return o, nil
}

// deleteCollection serves DELETE of a collection. It deletes the objects of the matching list and
// returns that list. The first error stops it, after the deletions in progress.
func (a *API) deleteCollection(c *Call) error {
	// 1. Parse the list options and the delete options.
	encoder, err := a.ForList(c.R, c.resource)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.Info, false, a.WatchList)
	if err != nil {
		return err
	}
	if err := o.resolveFields(c.Coder); err != nil {
		return err
	}
	deleteOptions, err := a.deleteOptions(c)
	if err != nil {
		return err
	}
	if writes.IgnoresReadErrors(deleteOptions) {
		return status.Invalid(metaKind("DeleteOptions"), "", field.ErrorList{writes.RejectForCollections()})
	}
	c.warnOfOrphans(deleteOptions)
	if err := o.resolveVersion(a.readsStore(c, o)); err != nil { // as in Kubernetes, after the warning
		return err
	}

	// 2. List the objects.
	p, err := a.filteredPage(c, encoder, o)
	if err != nil {
		return err
	}
	count := max(len(p.Items), p.Count)
	if c.Namespaced && c.Info.Namespace == "" && count > 0 { // as in Kubernetes, unless the list is empty
		return errNoNamespace()
	}
	if len(deleteOptions.DryRun) > 0 {
		if err := request.Estimate(c.Context(), dryRunCost*count); err != nil {
			return err
		}
	}

	// 3. Delete them.
	deleteOne := func(e *objects.Entry) error {
		call := &Call{resource: c.resource, api: a, W: c.W, R: c.R, Info: c.Info.ForObject(e.Namespace(), e.Name())}
		req := call.newWriteRequest(deleteOptions.DeepCopy(), deleteOptions.DryRun, "", "")
		req.Collection = true
		if _, err := a.Writer.Delete(c.Context(), req); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
	if err := a.eachInParallel(p, deleteOne); err != nil {
		return err
	}
	return p.writeList(c, encoder)
}

// dryRunCost is the cost in bytes of a dry-run deletion of one object. A dry run never waits for
// the store.
const dryRunCost = 1 << 10

// eachInParallel calls visit for the objects of a page, in DeleteCollectionWorkers goroutines. It
// repeats a panic of visit in the goroutine of the request, whose handler recovers it.
func (a *API) eachInParallel(p *page, visit func(*objects.Entry) error) error {
	if a.DeleteCollectionWorkers <= 1 {
		return p.Each(visit)
	}
	var g errgroup.Group
	var failed atomic.Bool
	var panicValue atomic.Pointer[any] // of the first panic
	g.SetLimit(a.DeleteCollectionWorkers)
	defer func() { _ = g.Wait() }() // also if the walk panics: no visit outlives the request
	err := p.Each(func(e *objects.Entry) error {
		if failed.Load() {
			return errParallel
		}
		g.Go(func() (err error) {
			defer func() {
				if failure := exchange.Failed(recover()); failure != nil {
					panicValue.CompareAndSwap(nil, &failure)
					err = errParallel
				}
				if err != nil {
					failed.Store(true)
				}
			}()
			return visit(e)
		})
		return nil
	})
	firstErr := g.Wait()
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
