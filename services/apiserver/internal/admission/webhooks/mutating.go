package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/json/jsonpatch"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// maxOperations is the maximum number of operations in a patch. Patches of clients have the same
// limit, because a single operation may move a whole list.
const maxOperations = 10000

// reinvocationKey is the key under which a request keeps the state for its second run.
type reinvocationKey struct{}

// Admit implements admission.Mutator. It calls the hooks in order, and each hook sees the changes
// of the previous ones. In the second run of the phase, it calls only hooks with the
// reinvocationPolicy IfNeeded, and only if the object has changed after their first call.
func (p *Mutating) Admit(ctx context.Context, req *admission.Request) error {
	found, err := p.candidates(ctx, req)
	if err != nil || len(found) == 0 {
		return err
	}
	reinvocation := req.Reinvocation(reinvocationKey{})
	views := p.views(ctx, req)
	for i := range found {
		if !reinvocation.ShouldCall(found[i].Value.caller.key) {
			continue
		}
		if err := p.callIfSelected(ctx, &found[i], req, views, reinvocation); err != nil {
			return err
		}
	}
	if err := views.WriteBack(); err != nil {
		return err
	}
	reinvocation.End()
	return nil
}

// callIfSelected calls a hook if its selectors and conditions match the request. It returns the
// error for the client if the request is rejected.
func (p *Mutating) callIfSelected(
	ctx context.Context,
	candidate *matcher.Candidate[*hook],
	req *admission.Request,
	requestViews *views.Views,
	reinvocation *admission.Reinvocation,
) error {
	matchedKind, view, err := p.selectedView(ctx, candidate, req, requestViews)
	if err != nil || view == nil {
		return err
	}
	webhook := candidate.Value
	start := time.Now()
	changed, err := p.callAndPatch(ctx, webhook, req, matchedKind, view)
	audit.FromContext(ctx).AddDuration(audit.MutatingWebhook, time.Since(start))
	request.FromContext(ctx).WaitTimes.Add(time.Since(start))
	p.observe(webhook, req, start, err)
	if changed {
		reinvocation.Changed()
	}
	if webhook.reinvoke {
		reinvocation.WantsReinvocation(webhook.caller.key)
	}
	switch e := err.(type) {
	case *failure:
		if ctx.Err() != nil {
			return timeoutError()
		}
		if !webhook.ignore {
			return e.status()
		}
		req.Annotate("failed-open.mutation.webhook.admission.k8s.io/"+roundIndex(webhook, req), webhook.name)
		return nil
	case *denial:
		return e.status
	}
	return err
}

// roundIndex returns the part of an audit annotation's key that identifies a call, such as
// "round_0_index_2".
func roundIndex(h *hook, r *admission.Request) string {
	round := 0
	if r.Reinvoked() {
		round = 1
	}
	return fmt.Sprintf("round_%d_index_%d", round, h.ordinal)
}

// callAndPatch calls a hook and applies the patch in its response to the view. An error is a
// *failure, a *denial or a Status.
func (p *Mutating) callAndPatch(
	ctx context.Context,
	webhook *hook,
	req *admission.Request,
	matchedKind matcher.MatchedKind,
	view *views.View,
) (changed bool, err error) {
	var response *reviewResponse
	defer func() { annotate(webhook, req, response, changed) }()
	if req.DryRun && !webhook.dryRun {
		return false, dryRunUnsupported(webhook)
	}
	review, err := newReviewRequest(req, matchedKind, view)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	resume := request.Suspend(ctx)
	const isMutating = true
	response, err = webhook.call(ctx, review, isMutating)
	resume()
	addAnnotationsAndWarnings(ctx, webhook, req, response)
	if err != nil {
		return false, err
	}
	if !response.allowed {
		return false, newDenial(webhook.name, response.result)
	}
	if n := len(response.patch); n > 0 {
		// A rejection by the limiter is ignored, because it would look like a rejection by the
		// webhook.
		_ = request.Estimate(ctx, max(n, request.PerValue*request.Values(response.patch)))
	}
	return applyPatch(webhook, view, review.object, response)
}

// applyPatch applies the patch in a response to the view, whose object has the JSON doc. An
// invalid patch rejects the request, regardless of the failurePolicy. An unsupported patch type
// is a *failure.
func applyPatch(webhook *hook, view *views.View, doc []byte, response *reviewResponse) (bool, error) {
	if len(response.patch) == 0 {
		return false, nil
	}
	if err := doccheck.CheckJSON(response.patch); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	ops, err := jsonpatch.Decode(response.patch)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	switch {
	case len(ops) == 0:
		return false, nil
	case len(ops) > maxOperations:
		return false, apierrors.NewInternalError(
			fmt.Errorf("admission webhook %q sent a JSON patch of %d operations; at most %d are allowed",
				webhook.name, len(ops), maxOperations),
		)
	case view.Object == nil:
		return false, apierrors.NewInternalError(
			fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", webhook.name),
		)
	case response.patchType != admissionv1.PatchTypeJSONPatch:
		return false, newFailure(webhook, fmt.Errorf("unsupported patch type %q", response.patchType))
	}
	patched, err := jsonpatch.Apply(doc, ops)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	obj, err := view.Decode(patched)
	var kind *views.KindError
	switch {
	case errors.As(err, &kind):
		return false, kind.Status()
	case err != nil:
		return false, apierrors.NewInternalError(err)
	}
	return view.Replace(obj), nil
}

// annotate adds the audit annotations of a call: whether it changed the object, and the patch.
// response is nil if the call failed.
func annotate(webhook *hook, req *admission.Request, response *reviewResponse, changed bool) {
	call := roundIndex(webhook, req)
	value, err := json.Marshal(struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{Configuration: webhook.configuration, Webhook: webhook.name, Mutated: changed})
	if err == nil {
		req.Annotate("mutation.webhook.admission.k8s.io/"+call, string(value))
	}
	if response == nil || !response.allowed || len(response.patch) == 0 {
		return
	}
	value, err = json.Marshal(struct {
		Configuration string          `json:"configuration"`
		Webhook       string          `json:"webhook"`
		Patch         json.RawMessage `json:"patch,omitempty"`
		PatchType     string          `json:"patchType,omitempty"`
	}{Configuration: webhook.configuration, Webhook: webhook.name, Patch: response.patch, PatchType: string(response.patchType)})
	if err == nil {
		req.Detail("patch.webhook.admission.k8s.io/"+call, string(value))
	}
}
