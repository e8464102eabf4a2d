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
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/json/jsonpatch"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// maxOperations bounds a patch, as that of a client: each may move a whole list.
const maxOperations = 10000

type turnsKey struct{}

// Admit implements admission.Mutator: hooks are asked in order, each sees what
// those before it made of the object. In the second turn only those are asked
// that want to be, when something changed after their first one.
func (p *Mutating) Admit(ctx context.Context, r *admission.Request) error {
	found, err := p.candidates(ctx, r)
	if err != nil || len(found) == 0 {
		return err
	}
	turns := r.Turns(turnsKey{})
	views := p.views(ctx, r)
	for i := range found {
		if !turns.Asks(found[i].Value.caller.key) {
			continue
		}
		if err := p.consult(ctx, &found[i], r, views, turns); err != nil {
			return err
		}
	}
	if err := views.Settle(); err != nil {
		return err
	}
	turns.End()
	return nil
}

// consult asks one hook, if it is to be asked.
func (p *Mutating) consult(ctx context.Context, c *matcher.Candidate[*hook], r *admission.Request, v *views.Views, turns *admission.Turns) error {
	as, view, err := p.selects(ctx, c, r, v)
	if err != nil || view == nil {
		return err
	}
	h := c.Value
	begin := time.Now()
	changed, err := p.apply(ctx, h, r, as, view)
	audit.From(ctx).Spent(audit.MutatingWebhook, time.Since(begin))
	request.WaitsFrom(ctx).Add(time.Since(begin))
	p.account(h, r, begin, err)
	if changed {
		turns.Changed()
	}
	if h.reinvoke {
		turns.Asked(h.caller.key)
	}
	switch e := err.(type) {
	case *failure:
		if ctx.Err() != nil {
			return outOfTime()
		}
		if !h.ignore {
			return e.status()
		}
		r.Annotate("failed-open.mutation.webhook.admission.k8s.io/"+place(h, r), h.name)
		return nil
	case *denial:
		return e.status
	}
	return err
}

// place of a call, in the keys of annotations.
func place(h *hook, r *admission.Request) string {
	round := 0
	if r.Reinvoked() {
		round = 1
	}
	return fmt.Sprintf("round_%d_index_%d", round, h.ordinal)
}

// apply asks a hook and patches the view.
func (p *Mutating) apply(ctx context.Context, h *hook, r *admission.Request, as matcher.As, view *views.View) (changed bool, err error) {
	var v *verdict
	defer func() { annotate(h, r, v, changed) }()
	if r.DryRun && !h.dryRun {
		return false, unsupported(h)
	}
	q, err := ask(r, as, view)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	answered := request.OnlyWaits(ctx)
	v, err = h.call(ctx, q, true)
	answered()
	tell(ctx, h, r, v)
	if err != nil {
		return false, err
	}
	if !v.allowed {
		return false, deny(h.name, v.result)
	}
	if n := len(v.patch); n > 0 {
		request.Weigh(ctx, max(n, request.PerValue*request.Values(v.patch))) // or without a turn: a refusal would be taken for the webhook's
	}
	return patch(h, view, q.object, v)
}

// patch applies what a webhook wants changed. What is wrong with it is the
// request's end whatever the failurePolicy says.
func patch(h *hook, view *views.View, doc []byte, v *verdict) (bool, error) {
	if len(v.patch) == 0 {
		return false, nil
	}
	if err := codec.CheckJSON(v.patch); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	ops, err := jsonpatch.Decode(v.patch)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	switch {
	case len(ops) == 0:
		return false, nil
	case len(ops) > maxOperations:
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q sent a JSON patch of %d operations; at most %d are allowed", h.name, len(ops), maxOperations))
	case view.Object == nil:
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.name))
	case v.patchType != admissionv1.PatchTypeJSONPatch:
		return false, newFailure(h, fmt.Errorf("unsupported patch type %q", v.patchType))
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

// annotate tells the audit log what a webhook changed.
func annotate(h *hook, r *admission.Request, v *verdict, changed bool) {
	at := place(h, r)
	told, err := json.Marshal(struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{h.configuration, h.name, changed})
	if err == nil {
		r.Annotate("mutation.webhook.admission.k8s.io/"+at, string(told))
	}
	if v == nil || !v.allowed || len(v.patch) == 0 {
		return
	}
	told, err = json.Marshal(struct {
		Configuration string          `json:"configuration"`
		Webhook       string          `json:"webhook"`
		Patch         json.RawMessage `json:"patch,omitempty"`
		PatchType     string          `json:"patchType,omitempty"`
	}{h.configuration, h.name, v.patch, string(v.patchType)})
	if err == nil {
		r.Detail("patch.webhook.admission.k8s.io/"+at, string(told))
	}
}
