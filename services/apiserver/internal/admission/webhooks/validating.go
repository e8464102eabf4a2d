package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/matcher"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// consultation is one hook that is asked about a request, and what came of it.
type consultation struct {
	hook     *hook
	question *question
	verdict  *verdict
	err      error
	panicked any
}

// Validate implements admission.Validator: all hooks are asked side by side, and
// the first of them, in the order of their configurations, that refuses does it.
func (p *Validating) Validate(ctx context.Context, r *admission.Request) error {
	found, err := p.candidates(ctx, r)
	if err != nil || len(found) == 0 {
		return err
	}
	asked, err := p.consultations(ctx, found, r)
	if err != nil || len(asked) == 0 {
		return err
	}
	if ctx.Err() != nil {
		return outOfTime()
	}
	begin := time.Now()
	defer request.OnlyWaits(ctx)()
	defer func() { audit.From(ctx).Spent(audit.ValidatingWebhook, time.Since(begin)) }()
	safely := func(c *consultation) {
		defer func() { c.panicked = serving.Failed(recover()) }()
		p.consult(ctx, c, r)
	}
	var all sync.WaitGroup
	for _, c := range asked[1:] {
		all.Go(func() { safely(c) })
	}
	safely(asked[0]) // nobody goes on beyond the request
	all.Wait()
	for _, c := range asked {
		if c.panicked != nil {
			panic(c.panicked) // it is the request's, and does not take the server with it
		}
	}
	request.WaitsFrom(ctx).Add(time.Since(begin))
	return p.conclude(ctx, asked, r)
}

// consultations are the hooks to ask. Those that see the request the same share
// the question.
func (p *Validating) consultations(ctx context.Context, found []matcher.Candidate[*hook], r *admission.Request) ([]*consultation, error) {
	views := p.views(ctx, r)
	questions := map[matcher.As]*question{}
	var out []*consultation
	for i := range found {
		as, view, err := p.selects(ctx, &found[i], r, views)
		if err != nil {
			return nil, err
		}
		if view == nil {
			continue
		}
		q := questions[as]
		if q == nil {
			if q, err = ask(r, as, view); err != nil {
				return nil, err
			}
			questions[as] = q
		}
		out = append(out, &consultation{hook: found[i].Value, question: q})
	}
	return out, nil
}

func (p *Validating) consult(ctx context.Context, c *consultation, r *admission.Request) {
	begin := time.Now()
	if r.DryRun && !c.hook.dryRun {
		c.err = unsupported(c.hook)
	} else {
		c.verdict, c.err = c.hook.call(ctx, c.question, false)
	}
	if c.err == nil && !c.verdict.allowed {
		c.err = deny(c.hook.name, c.verdict.result)
	}
	p.account(c.hook, r, begin, c.err)
}

// conclude makes one answer of all.
func (p *Validating) conclude(ctx context.Context, asked []*consultation, r *admission.Request) error {
	var first error
	for _, c := range asked {
		tell(ctx, c.hook, r, c.verdict)
		err := c.err
		switch e := err.(type) {
		case *failure:
			if err = e.status(); ctx.Err() != nil {
				err = outOfTime()
			} else if c.hook.ignore {
				r.Annotate(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", c.hook.ordinal), c.hook.name)
				err = nil
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
