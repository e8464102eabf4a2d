package overload

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"time"

	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

const (
	// largeBody is the size in bytes from which a body counts as large.
	// Only the work on large bodies is limited.
	largeBody = request.LargeBody
	// LargeURL is the size in bytes from which the URL of a request, or its header fields that name
	// an impersonated user, add to its cost.
	LargeURL = 4 << 10
	// costFactor is the cost of a byte of a body that is converted before it is decoded, and of a byte
	// of a large URL. costFactorYAML is the cost of a byte of YAML: its conversion to JSON takes as
	// long as decoding, checking and storing the result.
	costFactor     = 4
	costFactorYAML = 16
	// minLargeBody is the size in bytes below which no body counts as large.
	minLargeBody = 512
	// costPerValue is the cost of one value of a document, in bytes of text.
	costPerValue = request.PerValue
	// minBodySize is the minimum size in bytes that a body counts. A
	// request takes that much memory anyway.
	minBodySize = 4 << 10
	// bodyWaitShare is the divisor of a request's remaining time that gives its maximum wait.
	bodyWaitShare = 4
	// bodyWaitWithoutDeadline is the maximum wait of requests without a deadline.
	bodyWaitWithoutDeadline = 15 * time.Second
)

// WithBody reads the bodies of authorized requests. A request releases its seats while its body
// arrives. The memory of bodies is limited for each priority level and shared fairly among the
// principals of the level. A body counts with the bytes that have arrived, not with its announced
// length. Work on large bodies has a separate limit, because an object takes many times the memory of
// its text.
func (f *Filters) WithBody(next http.Handler) http.Handler {
	return f.limitBodies(&levelBudgets{
		size:       max(f.options.Bounds.MinBodyBytes, f.options.Bounds.BodyBytesPerCPU*runtime.GOMAXPROCS(0)),
		maxWaiting: f.options.Bounds.WaitingBodies,
	}, next)
}

// limitBodies returns the filter of WithBody with the given memory.
func (f *Filters) limitBodies(levels *levelBudgets, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info := requestinfo.FromContext(ctx)
		work := workFrom(ctx)

		// 1. Receive the body and estimate the cost of the request.
		cost := urlCost(info, r)
		// The work on these requests may turn out to be large later, because the stored object is large.
		mayGrow := slices.Contains([]string{"patch", "update", "delete", "deletecollection"}, info.Verb)
		received := 0
		if hasBody(info, r) {
			budget := levels.forLevel(request.FromContext(ctx).PriorityLevel)
			reserved := &reservedBody{budget: budget, ctx: ctx, user: clientFrom(ctx)}
			defer exchange.AtEnd(w, func(any) { reserved.release() })
			body, err := reserved.receive(w, r)
			if err != nil && ctx.Err() == nil { // the request has no seats to continue with
				TooManyRequests(w, 1)
				return
			}
			received = len(body)
			f.telemetry.Metrics.ObserveBody(info, received)
			request.Step(ctx, request.StepBody)
			cost += bodyCost(body, r)
			mayGrow = true // the decoded object may be far larger than the text
		}
		if cost == 0 && !mayGrow {
			next.ServeHTTP(w, r)
			return
		}

		// 2. Limit the work until the response starts.
		defer exchange.AtEnd(w, func(any) { work.close() })
		if size := memoryOf(received, cost); size > 0 && !work.Estimate(ctx, size) {
			TooManyRequests(w, 1)
			return
		}
		next.ServeHTTP(&startingWriter{w, work}, r)
	})
}

// memoryOf returns the memory in bytes to reserve for the work on a body of a size in bytes and a
// cost (see bodyCost). It returns 0 if the cost is 0. The work on a unit of cost takes a quarter of a
// byte.
func memoryOf(size, cost int) int {
	if cost == 0 {
		return 0
	}
	return max(largeBody, size, cost/4)
}

// hasBody reports whether a request has a body that a handler reads. A body whose announced length
// is too large is left to the handler, which rejects it.
func hasBody(info *requestinfo.Info, r *http.Request) bool {
	known := info.Target != nil || info.Delegate != nil
	return known && info.IsWrite() && !info.LongRunning() && r.ContentLength != 0 && r.ContentLength <= request.MaxBody
}

// maxBodyWait returns how long a request may wait for bytes or a permit.
func maxBodyWait(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return bodyWaitWithoutDeadline
	}
	return time.Until(deadline) / bodyWaitShare
}
