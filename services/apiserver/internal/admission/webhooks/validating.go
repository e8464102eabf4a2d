package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// hookCall is the call of one hook and its result.
type hookCall struct {
	hook     *hook
	request  *reviewRequest
	response *reviewResponse // nil if the call failed
	err      error
	panicked any // value of a panic during the call, or nil
}

// Validate implements admission.Validator. It calls all hooks concurrently. If several reject the
// request, the first one in the order of configurations determines the error.
func (p *Validating) Validate(ctx context.Context, req *admission.Request) error {
	found, err := p.candidates(ctx, req)
	if err != nil || len(found) == 0 {
		return err
	}
	calls, err := p.selectedCalls(ctx, found, req)
	if err != nil || len(calls) == 0 {
		return err
	}
	if ctx.Err() != nil {
		return timeoutError()
	}
	start := time.Now()
	defer request.Suspend(ctx)()
	defer func() { audit.FromContext(ctx).AddDuration(audit.ValidatingWebhook, time.Since(start)) }()
	callSafely := func(c *hookCall) {
		defer func() { c.panicked = exchange.Failed(recover()) }()
		p.callHook(ctx, c, req)
	}
	var others sync.WaitGroup
	for _, c := range calls[1:] {
		others.Go(func() { callSafely(c) })
	}
	callSafely(calls[0]) // in this goroutine, because most requests have one call
	others.Wait()
	for _, c := range calls {
		if c.panicked != nil {
			panic(c.panicked) // again, in the goroutine of the request, which recovers
		}
	}
	request.FromContext(ctx).WaitTimes.Add(time.Since(start))
	return p.firstError(ctx, calls, req)
}

// selectedCalls returns the calls to make. Hooks that see the request in the same version share the
// encoded request.
func (p *Validating) selectedCalls(
	ctx context.Context,
	found []matcher.Candidate[*hook],
	req *admission.Request,
) ([]*hookCall, error) {
	views := p.views(ctx, req)
	requests := map[matcher.MatchedKind]*reviewRequest{}
	var out []*hookCall
	for i := range found {
		matchedKind, view, err := p.selectedView(ctx, &found[i], req, views)
		if err != nil {
			return nil, err
		}
		if view == nil {
			continue
		}
		review := requests[matchedKind]
		if review == nil {
			review, err = newReviewRequest(req, matchedKind, view)
			if err != nil {
				return nil, err
			}
			requests[matchedKind] = review
		}
		out = append(out, &hookCall{hook: found[i].Value, request: review})
	}
	return out, nil
}

// callHook calls the webhook of c and sets its response or error.
func (p *Validating) callHook(ctx context.Context, c *hookCall, req *admission.Request) {
	start := time.Now()
	if req.DryRun && !c.hook.dryRun {
		c.err = dryRunUnsupported(c.hook)
	} else {
		const isMutating = false
		c.response, c.err = c.hook.call(ctx, c.request, isMutating)
	}
	if c.err == nil && !c.response.allowed {
		c.err = newDenial(c.hook.name, c.response.result)
	}
	p.observe(c.hook, req, start, c.err)
}

// firstError records the annotations and warnings of all calls. It returns the first error that
// rejects the request, as a Status.
func (p *Validating) firstError(ctx context.Context, calls []*hookCall, req *admission.Request) error {
	var first error
	for _, c := range calls {
		addAnnotationsAndWarnings(ctx, c.hook, req, c.response)
		err := c.err
		switch e := err.(type) {
		case *failure:
			switch {
			case ctx.Err() != nil:
				err = timeoutError()
			case c.hook.ignore:
				req.Annotate(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", c.hook.ordinal), c.hook.name)
				err = nil
			default:
				err = e.status()
			}
		case *denial:
			err = e.status
		}
		if first == nil {
			first = err
		}
	}
	return first
}
