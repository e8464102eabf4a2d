package overload

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server/routing"
	"binnacle/services/apiserver/internal/server/telemetry"
	"binnacle/services/apiserver/internal/status"
)

// withFlowControl queues requests by priority and fairness. A long-running request holds its seats
// until it has started: a watch has sent its initial events, or a connection is proxied. A
// delegated request releases its seats if the delegate has not responded after the seatTimeout of
// package reverseproxy.
func (f *Filters) withFlowControl(next http.Handler) http.Handler {
	// stalled limits the requests that have released their seats while they wait, for example for a
	// client that does not read its response.
	stalled := newSharedLimit(f.options.Bounds.Stalled)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info := requestinfo.FromContext(ctx)
		longRunning := info.LongRunning()

		// 1. Wait for seats.
		admitted, class, err := f.acquireSeats(ctx, info)

		// 2. Kubernetes does not classify long-running requests other than watches. So their responses
		// have no headers of flow control, unless they are rejected. LooksLongRunning also covers paths
		// that this server does not serve: Kubernetes decides by verb, subresource and path alone.
		classified := !longRunning && !info.LooksLongRunning() || info.Verb == "watch"
		if classified || err != nil {
			setFlowHeaders(w.Header(), class)
		}
		if err != nil {
			var rejection *flowcontrol.Rejection
			errors.As(err, &rejection) // always succeeds: every error of Acquire wraps a Rejection
			TooManyRequests(w, rejection.RetryAfter)
			return
		}

		// 3. Release the seats at the end of the request, and while it waits.
		seats := &seatHolder{flow: f.options.Flow, stalled: stalled, ctx: ctx, user: clientFrom(ctx), request: admitted}
		defer exchange.AtEnd(w, func(any) { seats.close() })
		if clientResetStream(r) {
			w.WriteHeader(status.ClosedRequest)
			return
		}
		request.FromContext(ctx).PriorityLevel = class.Level
		exchange.OnSlowWrite(w, seats.pauseForClient, seats.resume)
		var onStarted func()
		if longRunning || info.Delegate != nil {
			onStarted = seats.close
		}
		workFrom(ctx).attachSeats(seats, onStarted)

		// 4. Serve the request.
		if !longRunning {
			inFlight := f.telemetry.Metrics.InFlight(info)
			inFlight.Inc()
			defer inFlight.Dec()
		}
		next.ServeHTTP(w, r)
	})
}

// acquireSeats waits for the seats of a request and records the wait.
func (f *Filters) acquireSeats(ctx context.Context, info *requestinfo.Info) (*flowcontrol.Request, flowcontrol.Class, error) {
	start := time.Now()
	queued := f.telemetry.Metrics.Queued(info)
	queued.Inc()
	spanCtx, span := f.telemetry.BeginSpan(ctx, "priorityandfairness")
	width := func(maximum int) flowcontrol.Width { return f.options.Width(info, maximum) }
	admitted, class, err := f.options.Flow.Acquire(spanCtx, request.UserFrom(ctx), info, width)
	span.End()
	queued.Dec()
	took := telemetry.ObserveSince(f.telemetry.Metrics.Filters.FlowControl, start)
	audit.FromContext(ctx).AddDuration(audit.Queueing, took)
	request.FromContext(ctx).WaitTimes.Add(took)
	return admitted, class, err
}

// clientResetStream reports whether the client has reset the HTTP/2 stream of the request. HTTP/1
// requests do not count, because their client may have closed one direction only.
func clientResetStream(r *http.Request) bool {
	return r.ProtoMajor == 2 && errors.Is(r.Context().Err(), context.Canceled)
}

// Exempt reports whether flow control never rejects a request. Health checks are exempt because a
// failed check restarts the server. The suite's own services are exempt because authentication and
// authorization of all other requests depend on them.
func Exempt(user *request.User, info *requestinfo.Info) bool {
	return !info.IsResource && routing.IsHealth(info.Path) || isSuiteService(user)
}

// setFlowHeaders sets the headers that name the flow schema and priority level of the request.
func setFlowHeaders(header http.Header, class flowcontrol.Class) {
	if class.SchemaUID != "" {
		header.Set(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, class.SchemaUID)
	}
	if class.LevelUID != "" {
		header.Set(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID, class.LevelUID)
	}
}

// TooManyRequests rejects a request with 429 in plain text, as Kubernetes does.
func TooManyRequests(w http.ResponseWriter, seconds int) {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}
