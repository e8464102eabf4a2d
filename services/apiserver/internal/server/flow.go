package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/status"
)

// fair lets flow control say when a request may run. Those that last as long as the
// client likes hold their seats until they have begun: a watch has told of what there was,
// and others are carried on. What another server answers holds them until that takes too long.
func (c *Config) fair(next http.Handler) http.Handler {
	stalled := newSlots(maxStalled)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		op, u := requestinfo.From(ctx), request.UserFrom(ctx)
		long := op.LongRunning()
		begin := time.Now()
		waiting := c.Metrics.inqueue.of(op)
		waiting.Inc()
		queued, span := c.step(ctx, "priorityandfairness")
		admitted, class, err := c.Flow.Begin(queued, u, op, func(most int) flowcontrol.Width { return c.Width(op, most) })
		span.End()
		waiting.Dec()
		took := noted(c.Metrics.filters.flow, begin)
		audit.From(ctx).Spent(audit.Queueing, took)
		request.WaitsFrom(ctx).Add(took)
		if !long || op.Verb == "watch" || err != nil { // Kubernetes judges nothing else that lasts
			nameJudges(w.Header(), class)
		}
		if err != nil {
			var no *flowcontrol.Rejection
			errors.As(err, &no)
			tooMany(w, no.RetryAfter)
			return
		}
		t := &turn{flow: c.Flow, stalled: stalled, ctx: ctx, user: clientOf(ctx), request: admitted}
		defer serving.AtEnd(w, func(any) { t.end() })
		if gone(r) {
			w.WriteHeader(status.ClosedRequest)
			return
		}
		request.SetPriorityLevel(ctx, class.Level)
		serving.OnSlowWrite(w, t.pause, t.resume)
		request.SetRest(ctx, func(begun bool) (func() error, bool) { return t.resume, t.giveBack(begun) })
		if (long || op.Foreign != nil) && !request.SetBegun(ctx, t.end) {
			r = r.WithContext(request.WithBegun(ctx, t.end))
		}
		if !long {
			g := c.Metrics.inflight.of(op)
			g.Inc()
			defer g.Dec()
		}
		next.ServeHTTP(w, r)
	})
}

// gone tells that nobody waits for an answer any more: the stream of HTTP/2 was reset
// before any work was done. A client of HTTP/1 may have closed one direction only.
func gone(r *http.Request) bool {
	return r.ProtoMajor == 2 && errors.Is(r.Context().Err(), context.Canceled)
}

// NeverRefused tells what flow control keeps out in no case: whoever restarts a
// server that does not answer, and the suite's own services, without which nobody
// is let in.
func NeverRefused(u *request.User, op *requestinfo.Info) bool {
	return !op.IsResource && isHealth(op.Path) || suiteService(u)
}

// nameJudges says in the answer what the request was judged by.
func nameJudges(h http.Header, class flowcontrol.Class) {
	if class.SchemaUID != "" {
		h.Set(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, class.SchemaUID)
	}
	if class.LevelUID != "" {
		h.Set(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID, class.LevelUID)
	}
}

// tooMany refuses a request in the form that Kubernetes has, which is plain text.
func tooMany(w http.ResponseWriter, seconds int) {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}
