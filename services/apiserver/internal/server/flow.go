package server

import (
	"errors"
	"net/http"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/flowcontrol"
	"binnacle/services/apiserver/internal/request"
)

// fair lets flow control say when a request may run. Requests that last as long
// as the client likes pass, but a watch waits for its turn and holds its seats
// until it has begun.
func (c *Config) fair(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		op, u := request.From(ctx), request.UserFrom(ctx)
		watch := op.LongRunning() && op.Verb == "watch"
		if op.LongRunning() && !watch {
			next.ServeHTTP(w, r)
			return
		}
		admitted, class, err := c.Flow.Begin(ctx, u, op, func(most int) flowcontrol.Width { return c.Width(op, r.URL.Query(), most) })
		nameJudges(w.Header(), class)
		if err != nil {
			var no *flowcontrol.Rejection
			errors.As(err, &no)
			tooMany(w, no.RetryAfter)
			return
		}
		defer c.Flow.End(admitted)
		if watch {
			r = r.WithContext(request.WithBegun(ctx, func() { c.Flow.End(admitted) }))
		} else {
			kind := "readOnly"
			if op.Writes() {
				kind = "mutating"
			}
			g := c.Metrics.inflight.WithLabelValues(kind)
			g.Inc()
			defer g.Dec()
		}
		next.ServeHTTP(w, r)
	})
}

// NeverRefused tells what flow control keeps out in no case: whoever restarts a
// server that does not answer, and the suite's own services, without which nobody
// is let in.
func NeverRefused(u *request.User, op *request.Operation) bool {
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
